package enrollment_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// admitted returns how many of so many requests from an address are looked at at all.
func (o *office) admitted(address string, requests int) (n int) {
	o.t.Helper()
	for range requests {
		_, err := o.enroll(address, "no token", nil)
		switch status.Code(err) {
		case codes.Unauthenticated:
			n++
		case codes.ResourceExhausted:
			require.ErrorContains(o.t, err, "too many requests to enroll: try again later")
		default:
			require.NoError(o.t, err)
		}
	}
	return n
}

// Who asks often waits, and keeps nobody else from asking.
func TestRequestsOfOneAddressAreLimited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOffice(t, nil)
		require.Equal(t, 20, o.admitted("192.0.2.1", 30))
		require.Equal(t, 1, o.admitted("192.0.2.2", 1), "another address")
		require.Equal(t, 20, o.admitted("2001:db8::1", 30))
		require.Zero(t, o.admitted("2001:db8::2:0:0:1", 1), "the same network: whoever has one address there has them all")
		require.Equal(t, 1, o.admitted("2001:db8:0:1::1", 1), "another network")
		<-time.After(2 * time.Second)
		require.Equal(t, 1, o.admitted("192.0.2.1", 5))
		<-time.After(time.Hour)
		require.Equal(t, 20, o.admitted("192.0.2.1", 30), "no more is saved up")
	})
}

// Many addresses together cost the hub no more than it can bear.
func TestRequestsOfAllAreLimited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOffice(t, nil)
		of := func(requests int) (n int) {
			for i := range requests {
				n += o.admitted(fmt.Sprintf("198.51.%d.%d", i/250, i%250), 1)
			}
			return n
		}
		require.Equal(t, 100, of(150))
		<-time.After(time.Second)
		require.Equal(t, 20, of(50))
	})
}

// What is remembered of addresses is bounded: it is forgotten rather than kept.
func TestRememberedAddressesAreBounded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOffice(t, nil)
		others := func(from, to int) {
			for i := from; i < to; i++ {
				_, _ = o.enroll(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), "no token", nil)
			}
		}
		require.Equal(t, 20, o.admitted("192.0.2.1", 25))
		others(0, 9_999)
		<-time.After(5 * time.Second)
		require.Equal(t, 2, o.admitted("192.0.2.1", 25), "remembered")
		others(9_999, 10_000) // the limit
		<-time.After(5 * time.Second)
		require.Equal(t, 20, o.admitted("192.0.2.1", 25), "forgotten")
	})
}

// An agent that renews without end is held up alone.
func TestRenewalsOfOneAgentAreLimited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOffice(t, nil)
		issued := func(name string, requests int) (n int) {
			for range requests {
				_, err := o.renew(name, csrOf(t, name))
				if err == nil {
					n++
					continue
				}
				require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
				require.ErrorContains(t, err, "too many renewals: try again later")
			}
			return n
		}
		require.Equal(t, 10, issued("berlin", 12))
		require.Equal(t, 1, issued("paris", 1))
		<-time.After(10 * time.Second)
		require.Equal(t, 1, issued("berlin", 3))
		o.counts("certificate", "issued", 12)
		o.counts("certificate", "refused", 4)
	})
}

// A signer that does not answer keeps a caller for a while, and no longer.
func TestSignerThatDoesNotAnswer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newOffice(t, signs(func(ctx context.Context, _ identity.Agent, _ pki.Request) ([]byte, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("the CA at 10.0.0.1: %w", ctx.Err())
		}))
		token := o.token("berlin")
		for by, ask := range map[string]func() error{
			"token":       func() error { _, err := o.enroll("192.0.2.1", token, csrOf(t, "berlin")); return err },
			"certificate": func() error { _, err := o.renew("berlin", csrOf(t, "berlin")); return err },
		} {
			began := time.Now()
			err := ask()
			require.Equal(t, 20*time.Second, time.Since(began))
			require.Equal(t, status.Error(codes.Unavailable, unavailable).Error(), err.Error())
			o.counts(by, "failed", 1)
		}
		require.Contains(t, o.log.String(), "the CA at 10.0.0.1: context deadline exceeded")
	})
}
