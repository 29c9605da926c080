package envoy

import (
	"encoding/json"
	"net"
	"strconv"

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
	return json.Marshal(object{
		"admin": object{"address": socket(port.Address(admin))},
		"static_resources": object{
			"listeners": []object{{
				"name": "in", "address": socket(port.Address(in)),
				"filter_chains": []object{o.Listener.filterChain()},
			}},
			"clusters": []object{o.Backend.cluster()},
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
		"set_current_client_cert_details": object{"uri": true, "cert": l.ForwardCertificate},
		"upgrade_configs":                 []object{{"upgrade_type": "websocket"}, {"upgrade_type": "SPDY/3.1"}}, // kubectl exec
		"route_config": object{"virtual_hosts": []object{{
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
	protocol, http2 := object{"http2_protocol_options": object{}}, !b.HTTP1
	if b.HTTP1 {
		protocol = object{"http_protocol_options": object{}}
	}
	cluster := object{
		"name": "backend", "connect_timeout": "5s", "type": "STATIC",
		"typed_extension_protocol_options": object{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed("envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
				object{"explicit_http_config": protocol}),
		},
		"load_assignment": object{"cluster_name": "backend", "endpoints": []object{{
			"lb_endpoints": []object{{"endpoint": object{"address": socket(b.Address)}}},
		}}},
	}
	if b.Identity != nil {
		common := b.Identity.context()
		if http2 {
			common["alpn_protocols"] = []string{"h2"}
		}
		cluster["transport_socket"] = object{
			"name":         "envoy.transport_sockets.tls",
			"typed_config": typed("envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", object{"common_tls_context": common}),
		}
	}
	return cluster
}

// context is how an identity is shown, and who is trusted.
func (i *Identity) context() object {
	context := object{"tls_params": object{"tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3"}}
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
