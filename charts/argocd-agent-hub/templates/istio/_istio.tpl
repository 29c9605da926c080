{{- /* Not empty where the chart makes Istio's objects. */}}
{{- define "hub.istio" -}}
{{- if and (ne .Values.istio.mode "none") .Values.istio.objects }}yes{{ end }}
{{- end }}

{{- /* The same, where there are sidecars. */}}
{{- define "hub.istioSidecars" -}}
{{- if eq .Values.istio.mode "sidecar" }}{{ include "hub.istio" . }}{{ end }}
{{- end }}

{{- /* The same, where sidecars see requests: the programs speak plain text to them. */}}
{{- define "hub.istioHTTP" -}}
{{- if eq .Values.certificates.mode "sidecar" }}{{ include "hub.istioSidecars" . }}{{ end }}
{{- end }}

{{- /* The label by which a Pod joins the mesh. */}}
{{- define "hub.istioLabel" -}}
{{- if eq .Values.istio.mode "sidecar" }}
sidecar.istio.io/inject: "true"
{{- else if eq .Values.istio.mode "ambient" }}
istio.io/dataplane-mode: ambient
{{- end }}
{{- end }}

{{- /* What NetworkPolicies let in besides, for the mesh. */}}
{{- define "hub.istioIngress" -}}
{{- if eq .Values.istio.mode "ambient" }}
- ports: [{port: 15008, protocol: TCP}] # HBONE, in which everything comes; AuthorizationPolicies say who may
- ports: [{port: healthz, protocol: TCP}]
  from: # Istio's name for the kubelet, whose probes no policy would let through otherwise
    - ipBlock: {cidr: 169.254.7.127/32}
    - ipBlock: {cidr: "fd16:9254:7127:1337:ffff:ffff:ffff:ffff/128"}
{{- else if eq .Values.istio.mode "sidecar" }}
- ports: [{port: 15020, protocol: TCP}, {port: 15090, protocol: TCP}] # metrics of the sidecar
  {{- with .Values.networkPolicy.metricsFrom }}
  from: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* A policy's rule for the metrics of a program. */}}
{{- define "hub.istioMetricsRule" -}}
- to: [{operation: {ports: [{{ include "hub.metricsPort" . | quote }}]}}] # metrics, for who is not in the mesh too: networkPolicy.metricsFrom
{{- end }}

{{- /* TCP settings of connections: one whose other side is gone without a word is noticed within a minute. */}}
{{- define "hub.istioConnections" -}}
tcp:
  connectTimeout: 5s
  tcpKeepalive: {time: 30s, interval: 10s, probes: 3}
{{- end }}

{{- /* What the sidecar of a program has to know of the mesh: services of this namespace, Istio's own, and the API server. */}}
{{- define "hub.istioSidecar" -}}
{{- if and (include "hub.istioSidecars" .root) (include "hub.runs" .) }}
# What the sidecar of {{ .program }} knows of the mesh.
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata:
  {{- include "hub.metadata" . | nindent 2 }}
spec:
  workloadSelector:
    labels:
      {{- include "hub.selector" . | nindent 6 }}
  {{- with .ingress }}
  ingress: {{ . | nindent 4 }}
  {{- end }}
  egress:
    - hosts: [./*, istio-system/*, default/kubernetes.default.svc.cluster.local]
{{- end }}
{{- end }}

{{- /* Requests are sent again only where they cannot have arrived. Istio's default is to do so for answers of 503 too. */}}
{{- define "hub.istioRetries" -}}
{attempts: 2, retryOn: "connect-failure,refused-stream"}
{{- end }}
