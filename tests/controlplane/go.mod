// The go command wants a go.mod in the folder even when -modfile names another one: each version of
// the control plane has its own, k8s-VERSION.mod with k8s-VERSION.sum (see the Makefile, target rig).
module netsurgeon.dev/tests/controlplane

go 1.26.0
