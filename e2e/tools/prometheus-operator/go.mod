// The CRDs of the Prometheus operator, for the objects in config/prometheus. Nothing is built: what is used is in the module
// itself, so `go mod tidy` would leave nothing here.
module cluster-api-provider-etcdadm/e2e/tools/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.94.1
