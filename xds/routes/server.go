package routes

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"github.com/prometheus/client_golang/prometheus"
	statusv3 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
)

// Characters that are kept of what a client says of itself, and of why it refuses what it was sent.
const maxNode, maxReason = 128, 1024

// Server serves a Table's resources (ADS), and knows who has subscribed. It is the server's callbacks.
type Server struct {
	discoveryv3.AggregatedDiscoveryServiceServer

	metrics  metrics
	logger   *slog.Logger
	rejected *slog.Logger // limited: a client may repeat itself

	mu      sync.Mutex
	streams map[stream]*Subscriber // guarded by mu
}

// stream is one stream of a client's. Delta streams are counted on their own.
type stream struct {
	id    int64
	delta bool
}

// Subscriber is one client, as the dump for people shows it.
type Subscriber struct {
	Node      string    `json:"node"`
	Delta     bool      `json:"delta"`
	Since     time.Time `json:"since"`
	Names     int       `json:"names"`
	Responses int       `json:"responses"`
	// Rejected is why the client does not take what it was sent last, by the type of that; empty if it does.
	Rejected map[string]string `json:"rejected,omitempty"`
}

// NewServer returns a server of a table. The context ends its streams.
func NewServer(ctx context.Context, table *Table, registerer prometheus.Registerer, logger *slog.Logger) *Server {
	s := &Server{logger: logger, rejected: logging.Limited(logger), streams: make(map[stream]*Subscriber)}
	s.metrics = newMetrics(registerer, table, s)
	s.AggregatedDiscoveryServiceServer = server.NewServer(ctx, table.Configs(), server.CallbackFuncs{
		StreamOpenFunc:          func(_ context.Context, id int64, _ string) error { return s.opened(stream{id: id}) },
		DeltaStreamOpenFunc:     func(_ context.Context, id int64, _ string) error { return s.opened(stream{id, true}) },
		StreamClosedFunc:        func(id int64, _ *corev3.Node) { s.closed(stream{id: id}) },
		DeltaStreamClosedFunc:   func(id int64, _ *corev3.Node) { s.closed(stream{id, true}) },
		StreamRequestFunc:       s.asked,
		StreamDeltaRequestFunc:  s.askedDelta,
		StreamResponseFunc:      s.answered,
		StreamDeltaResponseFunc: s.answeredDelta,
	}, config.DeactivateLegacyWildcardForTypes([]string{resource.VirtualHostType}))
	return s
}

func (s *Server) opened(of stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[of] = &Subscriber{Delta: of.delta, Since: time.Now()}
	return nil
}

func (s *Server) closed(of stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if subscriber := s.streams[of]; subscriber != nil {
		s.logger.Info("Client disconnected", "node", subscriber.Node)
	}
	delete(s.streams, of)
}

// asked takes a request of state of the world.
func (s *Server) asked(id int64, request *discoveryv3.DiscoveryRequest) error {
	s.note(stream{id: id}, request.GetNode(), request.GetTypeUrl(), request.GetResponseNonce(), request.GetErrorDetail(), func(subscriber *Subscriber) {
		subscriber.Names = max(subscriber.Names, len(request.GetResourceNames()))
	})
	return nil
}

// askedDelta takes a delta request, which it may change.
func (s *Server) askedDelta(id int64, request *discoveryv3.DeltaDiscoveryRequest) error {
	if request.GetTypeUrl() == resource.VirtualHostType {
		request.ResourceNamesSubscribe = hostNames(request.GetResourceNamesSubscribe())
	}
	s.note(stream{id, true}, request.GetNode(), request.GetTypeUrl(), request.GetResponseNonce(), request.GetErrorDetail(), func(subscriber *Subscriber) {
		subscriber.Names = max(0, subscriber.Names+len(request.GetResourceNamesSubscribe())-len(request.GetResourceNamesUnsubscribe()))
	})
	return nil
}

// note notes a request.
func (s *Server) note(of stream, node *corev3.Node, kind, nonce string, refusal *statusv3.Status, count func(*Subscriber)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	subscriber := s.streams[of]
	if subscriber == nil {
		return // it is being closed
	}
	if node.GetId() != "" && subscriber.Node == "" {
		subscriber.Node = cut(node.GetId(), maxNode)
		s.logger.Info("Client connected", "node", subscriber.Node, "delta", of.delta)
	}
	count(subscriber)
	if kind = short(kind); refusal == nil {
		if nonce != "" { // it takes what it was sent
			delete(subscriber.Rejected, kind)
		}
		return
	}
	if subscriber.Rejected == nil {
		subscriber.Rejected = make(map[string]string)
	}
	subscriber.Rejected[kind] = cut(refusal.GetMessage(), maxReason)
	s.metrics.rejections.WithLabelValues(kind).Inc()
	s.rejected.Error("Client rejected resources (NACK); it keeps those that it has", "node", subscriber.Node, "type", kind, "reason", subscriber.Rejected[kind])
}

// cut returns the beginning of what a client says.
func cut(text string, most int) string { return strings.ToValidUTF8(text[:min(len(text), most)], "") }

// DeltaAggregatedResources implements [discoveryv3.AggregatedDiscoveryServiceServer].
func (s *Server) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.ended(s.AggregatedDiscoveryServiceServer.DeltaAggregatedResources(stream))
}

// ended logs why a client was disconnected, if it is for what it did.
func (s *Server) ended(err error) error {
	if status.Code(err) == codes.ResourceExhausted {
		s.rejected.Warn("Disconnected client", "err", err)
	}
	return err
}

func (s *Server) answered(_ context.Context, id int64, _ *discoveryv3.DiscoveryRequest, answer *discoveryv3.DiscoveryResponse) {
	s.sent(stream{id: id}, answer.GetTypeUrl(), size(answer.GetResources()))
}

func (s *Server) answeredDelta(id int64, _ *discoveryv3.DeltaDiscoveryRequest, answer *discoveryv3.DeltaDiscoveryResponse) {
	bytes := 0
	for _, r := range answer.GetResources() {
		bytes += len(r.GetResource().GetValue())
	}
	s.sent(stream{id, true}, answer.GetTypeUrl(), bytes)
}

func size(resources []*anypb.Any) (bytes int) {
	for _, r := range resources {
		bytes += len(r.GetValue())
	}
	return bytes
}

func (s *Server) sent(of stream, kind string, bytes int) {
	s.metrics.responses.WithLabelValues(short(kind)).Inc()
	s.metrics.bytes.WithLabelValues(short(kind)).Add(float64(bytes))
	s.mu.Lock()
	defer s.mu.Unlock()
	if subscriber := s.streams[of]; subscriber != nil {
		subscriber.Responses++
	}
}

// Subscribers returns who has subscribed, by their names.
func (s *Server) Subscribers() []Subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Subscriber, 0, len(s.streams))
	for _, subscriber := range s.streams {
		one := *subscriber
		one.Rejected = maps.Clone(one.Rejected)
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Subscriber) int { return cmp.Or(strings.Compare(a.Node, b.Node), a.Since.Compare(b.Since)) })
	return all
}

// short is the last part of a type's URL, such as VirtualHost; "other" for a type that is not served, whose name is the client's own.
func short(url string) string {
	switch url {
	case resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType, resource.VirtualHostType:
		return url[strings.LastIndexByte(url, '.')+1:]
	}
	return "other"
}
