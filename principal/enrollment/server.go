package enrollment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	enrollv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/enroll/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
)

// Limits of the port for agents without a certificate, which anybody can reach.
const (
	// connections that nobody has authenticated are all that there are: a quarter of this, and the oldest of the address that has most of
	// them makes room.
	connections = 1024
	maxMessage  = pki.MaxRequest + 4<<10
	maxHeaders  = 8 << 10
	maxAge      = time.Minute
	handshake   = 10 * time.Second
)

// Serve serves Enrollment, and nothing else, on an address until the context ends.
func (s *Service) Serve(ctx context.Context, address string, secure credentials.TransportCredentials, logger *slog.Logger) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen for enrollment: %w", err)
	}
	logger.Info("Listen for agents that enroll", "address", listener.Addr().String())
	server := grpc.NewServer(
		grpc.Creds(secure), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(1),
		grpc.ConnectionTimeout(handshake),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxAge / 2, MaxConnectionAge: maxAge, MaxConnectionAgeGrace: issueTimeout}),
	)
	enrollv1.RegisterEnrollmentServer(server, s)
	limited := connlimit.New(connlimit.Options{Total: connections, Setting: "--enrollment-port", Logger: logger}).Listen(listener)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(limited); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve enrollment: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		server.Stop()
		return nil
	})
	return group.Wait()
}
