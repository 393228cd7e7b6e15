// The CRDs of cluster-api-operator, for the sample in config/operator. Nothing is built: what is used is in the module itself,
// so `go mod tidy` would leave nothing here.
module cluster-api-provider-etcdadm/e2e/tools/cluster-api-operator

go 1.26.6

require sigs.k8s.io/cluster-api-operator v0.29.0
