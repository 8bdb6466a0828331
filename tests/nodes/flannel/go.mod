module netsurgeon.dev/tests/nodes/flannel

go 1.26.0

require github.com/flannel-io/flannel v0.28.10
