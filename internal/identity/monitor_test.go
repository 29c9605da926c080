package identity_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/identitytest"
)

// proven is a peer whose certificate lasts so long.
func proven(agent identity.Agent, session identity.Session, lasts time.Duration) identity.Peer {
	return identity.Peer{Agent: agent, Proof: identity.Proof{
		Method: identity.XFCC, URIs: []string{"spiffe://spoke.test/" + string(agent)}, Fingerprint: lasts.String(),
		NotAfter: time.Now().Add(lasts), Session: session,
	}}
}

func TestNewerCertificateOfASessionKeepsItsOlderStreams(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		monitor := identity.NewCertificateMonitor(&identitytest.Trust{})
		open := func(agent identity.Agent, session identity.Session, lasts time.Duration) context.Context {
			ctx, end, err := monitor.Bind(t.Context(), proven(agent, session, lasts))
			require.NoError(t, err)
			t.Cleanup(end)
			return ctx
		}
		mine, stolen, others, none := identity.NewSession(), identity.NewSession(), identity.NewSession(), identity.Session("")
		terminal := open("berlin", mine, time.Minute)
		thief := open("berlin", stolen, time.Minute)
		older := open("berlin", none, time.Minute)
		paris := open("paris", mine, time.Minute) // who guessed it
		open("berlin", others, time.Hour)
		open("berlin", none, time.Hour)
		<-time.After(30 * time.Second)
		sync := open("berlin", mine, time.Minute)
		<-time.After(45 * time.Second)
		synctest.Wait()
		require.NoError(t, terminal.Err(), "the newer certificate speaks for it")
		for name, ended := range map[string]context.Context{"another session": thief, "no session": older, "another agent": paris} {
			require.ErrorIs(t, context.Cause(ended), identity.ErrExpired, name)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(terminal), identity.ErrExpired)
		require.ErrorIs(t, context.Cause(sync), identity.ErrExpired)
		open("berlin", mine, time.Hour)
		require.Error(t, terminal.Err(), "what has ended has ended")
	})
}

func TestRefusedCertificateKeepsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		trust := &identitytest.Trust{}
		monitor := identity.NewCertificateMonitor(trust)
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		go monitor.Run(ctx)
		session := identity.NewSession()
		terminal, end, err := monitor.Bind(t.Context(), proven("berlin", session, time.Minute))
		require.NoError(t, err)
		defer end()
		synctest.Wait()
		trust.Change(errors.New("blocked"))
		_, _, err = monitor.Bind(t.Context(), proven("berlin", session, time.Hour))
		require.ErrorIs(t, err, identity.ErrRevoked)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(terminal), identity.ErrRevoked)
	})
}

// lateTrust blocks everybody while the proof of a stream is being verified that is about to speak for older ones.
type lateTrust struct {
	*identitytest.Trust
	verify func()
}

func (l lateTrust) Verify(peer identity.Peer) error {
	err := l.Trust.Verify(peer)
	l.verify()
	return err
}

func TestProofThatIsBlockedWhileItIsVerifiedKeepsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		trust := &identitytest.Trust{}
		var asked int
		answered, looked := make(chan struct{}), make(chan struct{})
		late := lateTrust{trust, func() {
			switch asked++; asked {
			case 2: // the newer proof was good; it is blocked before it speaks for the older stream, while the monitor looks at that
				trust.Change(errors.New("blocked"))
				<-looked
			case 3:
				close(looked)
				<-answered
			}
		}}
		monitor := identity.NewCertificateMonitor(late)
		session := identity.NewSession()
		terminal, end, err := monitor.Bind(t.Context(), proven("berlin", session, time.Minute))
		require.NoError(t, err)
		defer end()
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); synctest.Wait() }()
		asked = 1
		go func() {
			<-trust.Changed() // the one of case 2
			monitor.Run(ctx)
		}()
		synctest.Wait()
		newer, endNewer, err := monitor.Bind(t.Context(), proven("berlin", session, time.Hour))
		require.NoError(t, err, "it was good when it was asked")
		defer endNewer()
		close(answered)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(newer), identity.ErrRevoked)
		require.ErrorIs(t, context.Cause(terminal), identity.ErrRevoked)
	})
}
