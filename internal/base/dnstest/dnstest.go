// Package dnstest is DNS for tests, and shows what it is asked for.
package dnstest

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// Server is a DNS server of a test's. It knows which addresses each name has, and nothing else of it.
type Server struct {
	socket    net.PacketConn
	addresses [][4]byte

	mu    sync.Mutex
	asked []dnsmessage.Type // guarded by mu
}

// Start starts one that this process asks, until the test is over, in place of net.DefaultResolver: tests that run at the same time ask it too,
// so they must not. Names have the address 127.0.0.1, or those that are given, in that order.
func Start(tb testing.TB, addresses ...[4]byte) *Server {
	tb.Helper()
	s := Serve(tb, addresses...)
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.Address())
	}}
	tb.Cleanup(func() { net.DefaultResolver = before })
	return s
}

// Serve starts one for whoever asks it at its Address, until the test is over. Names have addresses as Start says.
func Serve(tb testing.TB, addresses ...[4]byte) *Server {
	tb.Helper()
	socket, err := new(net.ListenConfig).ListenPacket(tb.Context(), "udp", "127.0.0.1:0")
	require.NoError(tb, err)
	if len(addresses) == 0 {
		addresses = [][4]byte{{127, 0, 0, 1}}
	}
	s := &Server{socket: socket, addresses: addresses}
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.serve()
	}()
	tb.Cleanup(func() {
		_ = socket.Close() // it was read from to the end
		<-served
	})
	return s
}

// Address is the host:port that it listens on.
func (s *Server) Address() string { return s.socket.LocalAddr().String() }

// serve answers until the socket is closed.
func (s *Server) serve() {
	buffer := make([]byte, 1<<10)
	for {
		n, from, err := s.socket.ReadFrom(buffer)
		if err != nil {
			return
		}
		var message dnsmessage.Message
		if message.Unpack(buffer[:n]) != nil || len(message.Questions) != 1 {
			continue
		}
		s.note(message.Questions[0].Type)
		if answer, err := s.answerTo(message).Pack(); err == nil {
			_, _ = s.socket.WriteTo(answer, from) // whoever asks asks again
		}
	}
}

func (s *Server) note(asked dnsmessage.Type) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, asked)
}

// AddressesOnly requires that the server was asked for addresses, and for no TXT records: gRPC looks for a service config there. A DNS
// that does not answer that holds up each connection for half a minute, also to a name that /etc/hosts has. Call it when the connection
// was tried.
func (s *Server) AddressesOnly(tb testing.TB) {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Contains(tb, s.asked, dnsmessage.TypeA)
	require.NotContains(tb, s.asked, dnsmessage.TypeTXT)
}

// answerTo answers a question for addresses of IPv4, and knows nothing else.
func (s *Server) answerTo(message dnsmessage.Message) *dnsmessage.Message {
	message.Response, message.Additionals = true, nil
	question := message.Questions[0]
	if question.Type == dnsmessage.TypeA {
		for _, address := range s.addresses {
			message.Answers = append(message.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class},
				Body:   &dnsmessage.AResource{A: address},
			})
		}
	}
	return &message
}
