{{- /* What no schema can say: values that do not go together, and what the cluster has not. The cluster is asked when there is one:
`helm template` and GitOps render without. */}}
{{- define "hub.guards" -}}
{{- $v := .Values }}
{{- if not $v.server.address }}{{ fail "\nserver.address is empty: say by which host name or address agents reach this hub, such as --set server.address=hub.example.com" }}{{ end }}
{{- if or (contains "/" $v.server.address) (contains ":" $v.server.address) }}{{ fail (printf "\nserver.address is %q: it is a host name or an IPv4 address alone; the port is principal.service.port, or istio.gateway.port in a mesh" $v.server.address) }}{{ end }}
{{- $known := list }}
{{- range $program, $all := .Files.Get "files/parameters.yaml" | fromYaml }}{{ range $all }}{{ $known = append $known .key }}{{ end }}{{ end }}
{{- $fixed := dict "principal.listen.port" "8443" "kubeproxy.listen-port" "9090" "redisproxy.listen-port" "6379" "xds.listen-port" "18000" }}
{{- if $v.enrollment.enabled }}{{ $_ := set $fixed "principal.enrollment-port" "8444" }}{{ end }}
{{- range $key, $value := $v.params }}
{{- if not (has $key $known) }}{{ fail (printf "\nparams has the key %q, which is no setting of a program: files/parameters.yaml of this chart lists all of them" $key) }}{{ end }}
{{- with get $fixed $key }}{{ if ne . (toString $value) }}{{ fail (printf "\nparams has %s=%v: Services and policies of this chart lead to port %s. Leave the key away, and have a Service of your own lead to it from another port" $key $value .) }}{{ end }}{{ end }}
{{- if and (regexMatch `\.(healthz|metrics)[.-]port$` $key) (eq (toString $value) "0") }}{{ fail (printf "\nparams has %s=0: probes, Services and policies of this chart need that port. Leave the key away, or choose another port" $key) }}{{ end }}
{{- end }}
{{- if and (has $v.certificates.mode (list "spire" "sidecar")) (not $v.trustDomain) }}{{ fail (printf "\ncertificates.mode is %s, and trustDomain is empty: say the trust domain of this cluster's SPIFFE IDs, such as hub.example" $v.certificates.mode) }}{{ end }}
{{- if and (eq $v.certificates.mode "spire") (not $v.certificates.spire.csiDriver) (not $v.certificates.spire.hostPath) }}{{ fail "\ncertificates.mode is spire, and neither certificates.spire.csiDriver nor certificates.spire.hostPath says where the socket of the Workload API is" }}{{ end }}
{{- if and (eq $v.certificates.mode "cert-manager") (not $v.certificates.certManager.issuerRef.name) }}{{ fail "\ncertificates.mode is cert-manager, and certificates.certManager.issuerRef.name is empty: name the issuer" }}{{ end }}
{{- if and $v.enrollment.enabled (ne $v.certificates.mode "job") }}{{ fail (printf "\nenrollment.enabled needs the CA of certificates.mode=job, and the mode is %s: set params principal.signer and its like for another signer" $v.certificates.mode) }}{{ end }}
{{- include "hub.istioGuards" . }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}{{ include "hub.clusterGuards" . }}{{ end }}
{{- end }}

{{- define "hub.istioGuards" -}}
{{- $v := .Values }}
{{- with $v.istio }}
{{- if and (ne .mode "none") (not $v.trustDomain) }}{{ fail (printf "\nistio.mode is %s, and trustDomain is empty: say the mesh's, which is cluster.local where meshConfig.trustDomain says nothing" .mode) }}{{ end }}
{{- if and (ne .mode "none") (regexMatch "^[0-9.]+$" $v.server.address) }}{{ fail (printf "\nistio.mode is %s, and server.address is the address %s: the gateway knows by the name in TLS (SNI) that it is asked for the hub, and addresses have none. Give a host name" .mode $v.server.address) }}{{ end }}
{{- if and (eq .mode "ambient") (eq $v.certificates.mode "sidecar") }}{{ fail "\nistio.mode=ambient and certificates.mode=sidecar: ambient mode forwards no client certificates. Let the programs have certificates of their own, by another certificates.mode, or have sidecars" }}{{ end }}
{{- if and (ne .mode "none") (not .argocd) (eq $v.certificates.mode "sidecar") }}{{ fail "\nistio.argocd=false and certificates.mode=sidecar: kubeproxy knows Argo CD by the identity that its sidecar proves. Have Argo CD's Pods in the mesh, or another certificates.mode" }}{{ end }}
{{- end }}
{{- end }}

{{- define "hub.clusterGuards" -}}
{{- $ns := .Release.Namespace }}
{{- $v := .Values }}
{{- if not (.Capabilities.APIVersions.Has "argoproj.io/v1alpha1/Application") }}{{ fail "\nthis cluster has no Applications (applications.argoproj.io): install Argo CD first" }}{{ end }}
{{- if not (lookup "v1" "ConfigMap" $ns "argocd-cm") }}{{ fail (printf "\nnamespace %s has no Argo CD (no ConfigMap argocd-cm): install the chart into Argo CD's namespace, such as with -n argocd" $ns) }}{{ end }}
{{- range list (list "apps/v1" "Deployment" "argocd-agent-principal") (list "v1" "ConfigMap" "argocd-agent-params") }}
{{- with lookup (index . 0) (index . 1) $ns (index . 2) }}
{{- $owner := index (.metadata.annotations | default dict) "meta.helm.sh/release-name" }}
{{- if ne (toString $owner) $.Release.Name }}{{ fail (printf "\n%s %s is in namespace %s already, of %s: there is one hub in a namespace, and none beside an agent. Upgrade that release, or delete what is there" .kind .metadata.name $ns (ternary "no Helm release" (printf "the Helm release %s" $owner) (empty $owner))) }}{{ end }}
{{- end }}
{{- end }}
{{- if eq $v.certificates.mode "secrets" }}
{{- $need := list "argocd-agent-ca" "argocd-agent-principal-tls" "argocd-agent-resource-proxy-tls" "argocd-agent-kubeproxy-tls" "argocd-agent-redisproxy-tls" "argocd-agent-jwt" }}
{{- if $v.xds.enabled }}{{ $need = append $need "argocd-agent-xds-tls" }}{{ end }}
{{- range $need }}
{{- if not (lookup "v1" "Secret" $ns .) }}{{ fail (printf "\nSecret %s is not in namespace %s: make it by argocd-agentctl pki init, pki issue and jwt create-key, or let the chart, by certificates.mode=job" . $ns) }}{{ end }}
{{- end }}
{{- end }}
{{- if eq $v.certificates.mode "cert-manager" }}
{{- if not (.Capabilities.APIVersions.Has "cert-manager.io/v1/Certificate") }}{{ fail "\ncertificates.mode is cert-manager, and this cluster has no certificates.cert-manager.io: install cert-manager first" }}{{ end }}
{{- if not (lookup "v1" "Secret" $ns "argocd-agent-ca") }}{{ fail (printf "\nSecret argocd-agent-ca is not in namespace %s: put the certificate of the issuer's CA there, as ca.crt" $ns) }}{{ end }}
{{- end }}
{{- if include "hub.istio" . }}
{{- if not (.Capabilities.APIVersions.Has "networking.istio.io/v1/Gateway") }}{{ fail (printf "\nistio.mode is %s, and this cluster has no gateways.networking.istio.io: install Istio 1.27 or later first, or set istio.objects=false and apply the folder istio/ later" $v.istio.mode) }}{{ end }}
{{- if and (eq $v.certificates.mode "sidecar") (not (lookup "v1" "Namespace" "" $v.istio.gateway.namespace)) }}{{ fail (printf "\nnamespace %s is not there, which istio.gateway.namespace says the ingress gateway is in: install the gateway first, or say where it is" $v.istio.gateway.namespace) }}{{ end }}
{{- end }}
{{- with $v.metrics }}
{{- if and (or .podMonitor.enabled .prometheusRule.enabled) (not ($.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PodMonitor")) }}{{ fail "\nmetrics.podMonitor or metrics.prometheusRule is enabled, and this cluster has no monitoring.coreos.com/v1: install the Prometheus Operator first, or leave them away" }}{{ end }}
{{- end }}
{{- end }}
