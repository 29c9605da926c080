package identity

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// sessionHeader is the key of gRPC's metadata in which a client says which of its streams belong together.
const sessionHeader = "argocd-agent-session"

// sessionLength is how many hexadecimal digits a session has.
const sessionLength = 32

// Session is a secret that a program makes when it starts, and sends with each of its streams. With certificates that last minutes it
// keeps terminals and logs open: a stream with a newer certificate of the same identity and session speaks for the older ones. Who only
// stole the older certificate has no part in that: it does not know the secret.
type Session string

// NewSession returns a new one.
func NewSession() Session {
	secret := make([]byte, sessionLength/2)
	_, _ = rand.Read(secret) // it never fails
	return Session(hex.EncodeToString(secret))
}

// DialOption has a client send the session with its streams.
func (s Session) DialOption() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
		options ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return open(metadata.AppendToOutgoingContext(ctx, sessionHeader, string(s)), desc, conn, method, options...)
	})
}

// sessionOf returns the session of the stream that ctx belongs to, empty if it has none that can be one.
func sessionOf(ctx context.Context) Session {
	said := metadata.ValueFromIncomingContext(ctx, sessionHeader)
	if len(said) != 1 || len(said[0]) != sessionLength {
		return ""
	}
	return Session(said[0])
}
