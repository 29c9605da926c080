package tunnel_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// A DNS that does not answer, or not for TXT records, must not hold up a connection to a name that /etc/hosts has.
func TestNoServiceConfigIsLookedFor(t *testing.T) {
	dns := startDNS(t)
	conn, err := grpc.NewClient("dns:///principal.test:1", append(tunnel.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	stream, err := tunnelv1.NewRelayClient(conn).Watch(t.Context(), &tunnelv1.WatchRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	require.Error(t, err, "nobody listens there")
	require.NoError(t, conn.Close())
	asked := dns()
	require.Contains(t, asked, dnsmessage.TypeA)
	require.NotContains(t, asked, dnsmessage.TypeTXT)
}

// startDNS has this process ask a DNS server of the test's, which knows that each name is 127.0.0.1. The function that it returns says
// what it was asked for.
func startDNS(t *testing.T) (asked func() []dnsmessage.Type) {
	t.Helper()
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex // guards types
	var types []dnsmessage.Type
	served := make(chan struct{})
	go func() {
		defer close(served)
		buffer := make([]byte, 1<<10)
		for {
			n, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			var message dnsmessage.Message
			if message.Unpack(buffer[:n]) != nil {
				continue
			}
			mu.Lock()
			types = append(types, message.Questions[0].Type)
			mu.Unlock()
			if answer, err := answerTo(message).Pack(); err == nil {
				_, _ = socket.WriteTo(answer, from) // whoever asks asks again
			}
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", socket.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = socket.Close() // it was read from to the end
		<-served
	})
	return func() []dnsmessage.Type {
		mu.Lock()
		defer mu.Unlock()
		return types
	}
}

// answerTo answers a question for addresses of IPv4, and knows nothing else.
func answerTo(message dnsmessage.Message) *dnsmessage.Message {
	message.Response, message.Additionals = true, nil
	question := message.Questions[0]
	if question.Type == dnsmessage.TypeA {
		message.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class},
			Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
		}}
	}
	return &message
}
