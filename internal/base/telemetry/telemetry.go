// Package telemetry exports what gRPC's calls and messages are, by method and result. How many series there are does not depend
// on how many agents there are.
package telemetry

import (
	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// ServerOptions returns the options by which a server counts its calls, and registers the metrics. A program has one server.
func ServerOptions(r prometheus.Registerer) []grpc.ServerOption {
	m := grpcprom.NewServerMetrics()
	r.MustRegister(m)
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(m.UnaryServerInterceptor()), grpc.ChainStreamInterceptor(m.StreamServerInterceptor()),
	}
}

// DialOptions returns the options by which a client counts its calls, and registers the metrics. They are for all connections of
// a program.
func DialOptions(r prometheus.Registerer) []grpc.DialOption {
	m := grpcprom.NewClientMetrics()
	r.MustRegister(m)
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(m.UnaryClientInterceptor()), grpc.WithChainStreamInterceptor(m.StreamClientInterceptor()),
	}
}
