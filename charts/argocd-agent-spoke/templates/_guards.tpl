{{- /* What no schema can say: values that do not go together, and what the cluster has not. The cluster is asked when there is one:
`helm template` and GitOps render without. */}}
{{- define "spoke.guards" -}}
{{- if not .Values.server.address }}{{ fail "\nserver.address is empty: say where this cluster reaches the principal, such as --set server.address=hub.example.com" }}{{ end }}
{{- if or (contains "/" .Values.server.address) (contains ":" .Values.server.address) }}{{ fail (printf "\nserver.address is %q: it is a host name or an IPv4 address alone; the port is server.port" .Values.server.address) }}{{ end }}
{{- $known := list }}
{{- range .Files.Get "files/parameters.yaml" | fromYamlArray }}{{ $known = append $known .key }}{{ end }}
{{- range $key, $value := .Values.params }}
{{- if not (has $key $known) }}{{ fail (printf "\nparams has the key %q, which is no setting of the agent: files/parameters.yaml of this chart lists all of them" $key) }}{{ end }}
{{- if and (regexMatch `\.(healthz|metrics)[.-]port$` $key) (eq (toString $value) "0") }}{{ fail (printf "\nparams has %s=0: probes and policies of this chart need that port. Leave the key away, or choose another port" $key) }}{{ end }}
{{- end }}
{{- with .Values.certificates }}
{{- if and (eq .mode "spire") (not $.Values.server.spiffeID) }}{{ fail "\ncertificates.mode is spire, and server.spiffeID is empty: the Workload API vouches for every workload of its trust domain, so say which SPIFFE ID is the principal's, such as spiffe://hub.example/ns/argocd/sa/argocd-agent-principal" }}{{ end }}
{{- if and (eq .mode "spire") (not .spire.csiDriver) (not .spire.hostPath) }}{{ fail "\ncertificates.mode is spire, and neither certificates.spire.csiDriver nor certificates.spire.hostPath says where the socket of the Workload API is" }}{{ end }}
{{- if and (eq .mode "cert-manager") (not .certManager.issuerRef.name) }}{{ fail "\ncertificates.mode is cert-manager, and certificates.certManager.issuerRef.name is empty: name the issuer" }}{{ end }}
{{- if and (eq .mode "cert-manager") (not $.Values.name) }}{{ fail "\ncertificates.mode is cert-manager, and name is empty: the certificate names the agent" }}{{ end }}
{{- if and .enroll.token (ne .mode "enroll") }}{{ fail (printf "\ncertificates.enroll.token is given, and certificates.mode is %s: set it to enroll, or leave the token away" .mode) }}{{ end }}
{{- end }}
{{- with .Values.istio }}
{{- if and (ne .mode "none") (regexMatch "^[0-9.]+$" $.Values.server.address) }}{{ fail (printf "\nistio.mode is %s, and server.address is the address %s: the hub's gateway knows by the name in TLS (SNI) that it is asked for the hub, and addresses have none. Give a host name" .mode $.Values.server.address) }}{{ end }}
{{- if and (eq .mode "ambient") (eq $.Values.certificates.mode "sidecar") }}{{ fail "\nistio.mode=ambient and certificates.mode=sidecar: ambient mode shows nobody outside of the mesh who the agent is. Let the agent have a certificate of its own, by another certificates.mode, or have sidecars" }}{{ end }}
{{- if and (eq .mode "sidecar") .objects (eq $.Values.certificates.mode "sidecar") (not $.Values.server.spiffeID) }}{{ fail "\ncertificates.mode is sidecar, and server.spiffeID is empty: say which SPIFFE ID the hub's ingress gateway has, such as spiffe://hub.example/ns/istio-ingress/sa/istio-ingressgateway" }}{{ end }}
{{- end }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}{{ include "spoke.clusterGuards" . }}{{ end }}
{{- end }}

{{- define "spoke.clusterGuards" -}}
{{- $ns := .Release.Namespace }}
{{- if not (.Capabilities.APIVersions.Has "argoproj.io/v1alpha1/Application") }}{{ fail "\nthis cluster has no Applications (applications.argoproj.io): install Argo CD first, at least its application controller, repo server and Redis" }}{{ end }}
{{- if not (lookup "v1" "ConfigMap" $ns "argocd-cm") }}{{ fail (printf "\nnamespace %s has no Argo CD (no ConfigMap argocd-cm): install the chart into Argo CD's namespace, such as with -n argocd" $ns) }}{{ end }}
{{- range list (list "apps/v1" "Deployment" "argocd-agent-agent") (list "v1" "ConfigMap" "argocd-agent-params") }}
{{- with lookup (index . 0) (index . 1) $ns (index . 2) }}
{{- $owner := index (.metadata.annotations | default dict) "meta.helm.sh/release-name" }}
{{- if ne (toString $owner) $.Release.Name }}{{ fail (printf "\n%s %s is in namespace %s already, of %s: there is one agent in a namespace, and none beside a principal. Upgrade that release, or delete what is there" .kind .metadata.name $ns (ternary "no Helm release" (printf "the Helm release %s" $owner) (empty $owner))) }}{{ end }}
{{- end }}
{{- end }}
{{- if eq .Values.certificates.mode "secrets" }}
{{- if not (lookup "v1" "Secret" $ns "argocd-agent-client-tls") }}{{ fail (printf "\nSecret argocd-agent-client-tls is not in namespace %s: run `argocd-agentctl pki issue agent NAME`, or give a token by certificates.mode=enroll" $ns) }}{{ end }}
{{- end }}
{{- if and (has .Values.certificates.mode (list "secrets" "enroll" "cert-manager")) (not .Values.certificates.ca) }}
{{- if not (lookup "v1" "Secret" $ns "argocd-agent-ca") }}{{ fail (printf "\nSecret argocd-agent-ca is not in namespace %s: run `argocd-agentctl pki propagate`, or give the CA's certificate as certificates.ca" $ns) }}{{ end }}
{{- end }}
{{- if and (eq .Values.certificates.mode "enroll") (not .Values.certificates.enroll.token) }}
{{- if not (lookup "v1" "Secret" $ns "argocd-agent-enrollment") }}{{ fail (printf "\nSecret argocd-agent-enrollment is not in namespace %s: run `argocd-agentctl agent token create NAME` and give the token as certificates.enroll.token" $ns) }}{{ end }}
{{- end }}
{{- if and (eq .Values.certificates.mode "cert-manager") (not (.Capabilities.APIVersions.Has "cert-manager.io/v1/Certificate")) }}{{ fail "\ncertificates.mode is cert-manager, and this cluster has no certificates.cert-manager.io: install cert-manager first" }}{{ end }}
{{- if and (include "spoke.istio" .) (not (.Capabilities.APIVersions.Has "networking.istio.io/v1/ServiceEntry")) }}{{ fail (printf "\nistio.mode is %s, and this cluster has no serviceentries.networking.istio.io: install Istio 1.27 or later first, or set istio.objects=false and apply the folder istio/ later" .Values.istio.mode) }}{{ end }}
{{- if and (or .Values.metrics.podMonitor.enabled .Values.metrics.prometheusRule.enabled) (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PodMonitor")) }}{{ fail "\nmetrics.podMonitor or metrics.prometheusRule is enabled, and this cluster has no monitoring.coreos.com/v1: install the Prometheus Operator first, or leave them away" }}{{ end }}
{{- end }}
