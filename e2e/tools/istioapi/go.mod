// Module istioapi pins the definitions of Istio's objects, by which an API server checks them. They are a small part of Istio, which takes minutes to build.
module github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/tools/istioapi

go 1.26.3

require istio.io/api v1.31.1
