// Downloads flannel; `make rig` builds it in a copy of its module, which has its own list of dependencies.
module netsurgeon.dev/tests/nodes/flannel

go 1.26.0

require github.com/flannel-io/flannel v0.28.10
