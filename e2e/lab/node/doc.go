// Package node runs real nodes of Kubernetes on this machine: for each cluster a containerd and a kubelet in a network namespace of their own,
// with the CNI plugins, kube-proxy and CoreDNS. So Pods are Pods, with their own addresses, file systems and logs.
//
// It needs root, and the programs that `make tools` installs and builds; Unsupported says what is missing. Nothing leaves the machine: the
// network namespaces have no default route, and images are made of files that are here.
//
// What the kernel keeps of a lab (network namespaces, links, mounts, cgroups) is called by the lab's slot, a number that it holds a lock on. So
// what a lab leaves that was killed is found, and removed by the next that comes.
package node
