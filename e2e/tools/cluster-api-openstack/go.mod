// The manifests of Cluster API's OpenStack infrastructure, for the example of it. Nothing is built: what is used are the CRDs
// in the module itself, so `go mod tidy` would leave nothing here.
module cluster-api-provider-etcdadm/e2e/tools/cluster-api-openstack

go 1.26.0

require sigs.k8s.io/cluster-api-provider-openstack v0.14.7
