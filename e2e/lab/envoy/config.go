package envoy

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
)

// object is one of Envoy's messages, as JSON has it.
type object = map[string]any

// typed is a message in a place that may have one of several types.
func typed(name string, fields object) object {
	fields["@type"] = "type.googleapis.com/" + name
	return fields
}

// inline is a file's content.
func inline(text []byte) object { return object{"inline_string": string(text)} }

// bootstrap is Envoy's configuration: one listener, and one cluster behind it.
func (o Options) bootstrap(in, admin int) ([]byte, error) {
	clusters := []object{o.Backend.cluster()}
	if o.WorkloadAPI != "" {
		clusters = append(clusters, spire(o.WorkloadAPI))
	}
	return json.Marshal(object{
		"admin": object{"address": socket(port.Address(admin))},
		"static_resources": object{
			"listeners": []object{{
				"name": "in", "address": socket(port.Address(in)),
				"filter_chains": []object{o.Listener.filterChain()},
			}},
			"clusters": clusters,
		},
	})
}

func (l Listener) filterChain() object {
	forward := l.Forward
	if forward == "" {
		forward = SanitizeSet
	}
	manager := typed("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", object{
		"stat_prefix": "in", "codec_type": "AUTO", "stream_idle_timeout": "0s", // streams last
		"forward_client_cert_details":     forward,
		"set_current_client_cert_details": object{"uri": true, "cert": l.ForwardCertificate, "subject": l.ForwardSubject},
		"upgrade_configs":                 []object{{"upgrade_type": "websocket"}, {"upgrade_type": "SPDY/3.1"}}, // kubectl exec
		"route_config": object{"request_headers_to_add": l.headers(), "virtual_hosts": []object{{
			"name": "all", "domains": []string{"*"},
			"routes": []object{{"match": object{"prefix": "/"}, "route": object{"cluster": "backend", "timeout": "0s"}}},
		}}},
		"http_filters": []object{{
			"name": "envoy.filters.http.router", "typed_config": typed("envoy.extensions.filters.http.router.v3.Router", object{}),
		}},
	})
	chain := object{"filters": []object{{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}}}
	if l.Identity != nil {
		common := l.Identity.context()
		common["alpn_protocols"] = []string{"h2", "http/1.1"}
		chain["transport_socket"] = object{
			"name": "envoy.transport_sockets.tls",
			"typed_config": typed("envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", object{
				"require_client_certificate": !l.Anonymous, "common_tls_context": common,
			}),
		}
	}
	return chain
}

func (b Backend) cluster() object {
	cluster := static("backend", b.Address, b.HTTP1, b.Renew)
	if b.Identity != nil {
		common := b.Identity.context()
		if !b.HTTP1 {
			common["alpn_protocols"] = []string{"h2"}
		}
		cluster["transport_socket"] = object{
			"name":         "envoy.transport_sockets.tls",
			"typed_config": typed("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", object{"common_tls_context": common}),
		}
	}
	return cluster
}

// headers are those that are set on each request.
func (l Listener) headers() []object {
	var all []object
	for name, value := range l.Headers {
		all = append(all, object{"header": object{"key": name, "value": strings.ReplaceAll(value, "%", "%%")}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"})
	}
	return all
}

// static is a cluster of one address, to which it speaks plain text.
func static(name, address string, http1 bool, renew time.Duration) object {
	protocol := object{"http2_protocol_options": object{}}
	if http1 {
		protocol = object{"http_protocol_options": object{}}
	}
	options := object{"explicit_http_config": protocol}
	if renew > 0 {
		options["common_http_protocol_options"] = object{"max_connection_duration": renew.String()}
	}
	return object{
		"name": name, "connect_timeout": "5s", "type": "STATIC",
		"typed_extension_protocol_options": object{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions", options),
		},
		"load_assignment": object{"cluster_name": name, "endpoints": []object{{
			"lb_endpoints": []object{{"endpoint": object{"address": socket(address)}}},
		}}},
	}
}

// spireCluster is the name of the cluster that is SPIRE's agent.
const spireCluster = "spire"

// spire is the cluster of the SPIRE agent at an address of its Workload API, where it serves SDS too.
func spire(workloadAPI string) object {
	return static(spireCluster, strings.TrimPrefix(workloadAPI, "unix://"), false, 0)
}

// secret names one of the things that SPIRE's agent gives by SDS.
func secret(name string) object {
	return object{"name": name, "sds_config": object{"resource_api_version": "V3", "api_config_source": object{
		"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": []object{{"envoy_grpc": object{"cluster_name": spireCluster}}},
	}}}
}

// allBundles is SPIRE's name for the bundle of the trust domain together with those that are federated, each for its own.
const allBundles = "ALL"

// fromSPIRE adds to a context what SPIRE's agent gives.
func (i *Identity) fromSPIRE(context object) object {
	peers := object{"prefix": "spiffe://"}
	if i.Peer != "" {
		peers = object{"exact": i.Peer}
	}
	context["tls_certificate_sds_secret_configs"] = []object{secret(i.SPIFFEID)}
	context["combined_validation_context"] = object{
		"default_validation_context":           object{"match_typed_subject_alt_names": []object{{"san_type": "URI", "matcher": peers}}},
		"validation_context_sds_secret_config": secret(allBundles),
	}
	return context
}

// context is how an identity is shown, and who is trusted.
func (i *Identity) context() object {
	context := object{"tls_params": object{"tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3"}}
	if i.SPIFFEID != "" {
		return i.fromSPIRE(context)
	}
	if i.CA != nil { // otherwise nobody is asked for a certificate
		context["validation_context"] = object{"trusted_ca": inline(i.CA)}
	}
	if i.Certificate != nil {
		context["tls_certificates"] = []object{{"certificate_chain": inline(i.Certificate), "private_key": inline(i.Key)}}
	}
	return context
}

// socket is an address: host:port, or the path of a Unix socket.
func socket(address string) object {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return object{"pipe": object{"path": address}}
	}
	number, _ := strconv.Atoi(text) // Envoy says what is wrong with it
	return object{"socket_address": object{"address": host, "port_value": number}}
}
