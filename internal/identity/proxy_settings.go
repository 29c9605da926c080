package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// Declare declares who may vouch for those who connect. The variables begin with a prefix, such as "ARGOCD_PRINCIPAL".
func (p *Proxies) Declare(set *settings.Set, prefix string) {
	set.Bool(&p.Local, "insecure-plaintext", prefix+"_INSECURE_PLAINTEXT", false,
		"INSECURE: serve without TLS, for the sidecar of a service mesh; connections are taken from loopback addresses and the Unix socket only, "+
			"and their peers are those of the header x-forwarded-client-cert")
	set.String(&p.Socket, "listen-socket", prefix+"_LISTEN_SOCKET", "",
		"path of a Unix socket to listen on instead of host and port, with --insecure-plaintext")
	set.Strings(&p.IDs, "trusted-proxies", prefix+"_TRUSTED_PROXIES", nil,
		"SPIFFE IDs of proxies, such as an ingress gateway, that connect by mutual TLS and vouch for others by the header x-forwarded-client-cert; "+
			"with --xfcc-hop, also of those that connect to another proxy",
		settings.Each(func(id string) error { _, err := ParseTemplate(id, ""); return err }))
	set.Int(&p.Hop, "xfcc-hop", prefix+"_XFCC_HOP", 0,
		"how many proxies there may be in a row, each of which says in the header x-forwarded-client-cert who its client is; what the first one says counts, and "+
			"all others have to be of --trusted-proxies; if 0 there may be one", settings.NonNegative)
	set.Rule(func() error {
		if p.Socket != "" && !p.Local {
			return errors.New("a Unix socket is for proxies that speak plain text: set --insecure-plaintext too")
		}
		return nil
	}, "listen-socket", "insecure-plaintext")
	set.Rule(func() error {
		switch {
		case p.Hop > 1 && len(p.IDs) == 0:
			return errors.New("an element counts only if a trusted proxy sent it to the next one: name the SPIFFE IDs of those by --trusted-proxies")
		case p.Hop < 2 && p.Local && len(p.IDs) > 0:
			return errors.New("without TLS no proxy can prove its SPIFFE ID: leave out --insecure-plaintext, or set --xfcc-hop if there are several proxies in a row")
		}
		return nil
	}, "trusted-proxies", "insecure-plaintext", "xfcc-hop")
	set.Rule(func() error {
		if p.Hop > 0 && !p.Any() {
			return errors.New("nobody is believed what the header says: set --insecure-plaintext or --trusted-proxies")
		}
		return nil
	}, "xfcc-hop")
}

// Any reports whether there is a proxy that is believed.
func (p Proxies) Any() bool { return p.Local || len(p.IDs) > 0 }

// localListener takes connections of this machine, or Pod, only.
type localListener struct {
	net.Listener
	logger    *slog.Logger
	sometimes rate.Sometimes
}

// Listen listens on the address, host:port, or the Unix socket. Without TLS it takes no other connections than a sidecar's. It need not
// listen on a loopback address for that: Istio's sidecar connects to the address of its Pod, from 127.0.0.6.
func (p Proxies) Listen(ctx context.Context, address string, logger *slog.Logger) (net.Listener, error) {
	var config net.ListenConfig
	if p.Socket != "" {
		listener, err := listenSocket(ctx, p.Socket)
		if err != nil {
			return nil, fmt.Errorf("--listen-socket: %w", err)
		}
		return listener, nil
	}
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen-host and --listen-port: %w", err)
	}
	if !p.Local {
		return listener, nil
	}
	return &localListener{Listener: listener, logger: logger, sometimes: rate.Sometimes{First: 1, Interval: time.Minute}}, nil
}

// socketMode lets the group of the folder connect, which a Pod's containers have in common by fsGroup. Whoever can connect is believed.
const socketMode = 0o660

// listenSocket listens on a Unix socket. The file of one that nobody listens on any more, as a crash leaves it, is replaced.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, path) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		listener, err = config.Listen(ctx, "unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// abandoned reports whether there is a Unix socket at the path that nobody listens on.
func abandoned(ctx context.Context, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket { // a connection to any other file is refused as well
		return false
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close() // nothing was written to it
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Accept returns the next connection of a sidecar.
func (l *localListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || Loopback(conn.RemoteAddr()) {
			return conn, err
		}
		l.sometimes.Do(func() {
			l.logger.Warn("Refused connection: without TLS (--insecure-plaintext) they are taken from loopback addresses only, such as those of a sidecar",
				"address", conn.RemoteAddr().String())
		})
		_ = conn.Close() // nothing was written to it
	}
}
