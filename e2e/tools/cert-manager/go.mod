// The CRDs of cert-manager, for the objects in config/cert-manager. Nothing is built: what is used is in the module itself, so
// `go mod tidy` would leave nothing here.
module cluster-api-provider-etcdadm/e2e/tools/cert-manager

go 1.26.0

require github.com/cert-manager/cert-manager v1.21.2
