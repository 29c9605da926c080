package enrollment_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// follow has the agent read its certificate from what is written to the Secret.
func (s *spoke) follow() {
	s.secrets.PrependReactor("*", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetVerb() != "patch" && a.GetVerb() != "create" {
			return false, nil, nil
		}
		_, object, err := clienttesting.ObjectReaction(s.secrets.Tracker())(a)
		if written, ok := object.(*corev1.Secret); err == nil && ok && written.Name == secretName {
			s.pair <- certs.Blocks{Certificate: written.Data["tls.crt"], Key: written.Data["tls.key"]}
		}
		return true, object, err
	})
}

func newCA(t *testing.T) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	return ca
}

// signed answers a request as a good principal does.
func signed(t *testing.T, ca *pki.CA, a request, validity pki.Validity) []byte {
	t.Helper()
	parsed, err := pki.ParseRequest(a.csr)
	require.NoError(t, err)
	require.NoError(t, parsed.NamesOnly("berlin"))
	text, err := ca.SignClient(pki.ClientOptions{CommonName: "berlin", Validity: validity}, parsed.Key)
	require.NoError(t, err)
	return text
}

// day is so many days after the time at which a bubble begins.
func day(n int) time.Time { return time.Date(2000, 1, 1+n, 0, 0, 0, 0, time.UTC) }

// lasting is a validity from now on.
func lasting(life time.Duration) pki.Validity {
	return pki.Validity{NotBefore: time.Now(), NotAfter: time.Now().Add(life)}
}

// Nothing that a principal answers gets into the Secret unless it is a certificate that the agent can use. The agent asks again, with the same
// key, for which alone its token is good.
func TestPrincipalThatLies(t *testing.T) {
	for want, lie := range map[string]func(t *testing.T, ca *pki.CA, a request) ([]byte, error){
		"private key does not match public key": func(t *testing.T, ca *pki.CA, _ request) ([]byte, error) {
			t.Helper()
			other, err := ca.IssueClient(pki.ClientOptions{CommonName: "berlin"})
			return other.Certificate, err
		},
		"its certificate ended at": func(t *testing.T, ca *pki.CA, a request) ([]byte, error) {
			t.Helper()
			return signed(t, ca, a, pki.Validity{NotBefore: day(-2), NotAfter: day(-1)}), nil
		},
		"its certificate is of \"paris\"": func(t *testing.T, ca *pki.CA, a request) ([]byte, error) {
			t.Helper()
			key, err := pki.ParseRequest(a.csr)
			require.NoError(t, err)
			return ca.SignClient(pki.ClientOptions{CommonName: "paris", Validity: lasting(24 * time.Hour)}, key.Key)
		},
		"its certificate begins at": func(t *testing.T, ca *pki.CA, a request) ([]byte, error) {
			t.Helper()
			return signed(t, ca, a, pki.Validity{NotBefore: day(1), NotAfter: day(2)}), nil
		},
		"private key does not match": func(_ *testing.T, ca *pki.CA, _ request) ([]byte, error) {
			return ca.PEM().Certificate, nil
		},
		"failed to find any PEM data": func(*testing.T, *pki.CA, request) ([]byte, error) { return []byte("junk"), nil },
		"received message larger than max": func(*testing.T, *pki.CA, request) ([]byte, error) {
			return bytes.Repeat([]byte("x"), 65<<10), nil
		},
		"the principal issues no certificates": func(*testing.T, *pki.CA, request) ([]byte, error) {
			return nil, status.Error(codes.Unimplemented, "what?")
		},
		`"no\x1b[2J`: func(*testing.T, *pki.CA, request) ([]byte, error) {
			return nil, status.Error(codes.PermissionDenied, "no\x1b[2J")
		},
	} {
		t.Run(want, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ca, began := newCA(t), time.Now()
				var requests []request
				s, stop := start(t, true, nil, func(a request) ([]byte, error) {
					requests = append(requests, a)
					if time.Since(began) <= time.Hour {
						return lie(t, ca, a)
					}
					return signed(t, ca, a, lasting(24*time.Hour)), nil
				})
				message, problem := s.next()
				require.Equal(t, "Failed to get a certificate of the principal; retrying", message)
				require.Contains(t, problem, want)
				require.Empty(t, s.secret()["tls.crt"])
				<-time.After(time.Hour)
				require.Empty(t, s.secret()["tls.crt"])
				require.Empty(t, s.logged, "a reason is logged once")
				message, _ = s.next()
				require.Equal(t, "Certificate issued by the principal", message)
				stop()
				require.NotEmpty(t, s.secret()["tls.key"])
				for _, r := range requests {
					require.Equal(t, s.token.Text(), r.token)
					require.Equal(t, requests[0].key(t), r.key(t))
				}
				require.InDelta(t, 22, len(requests), 8, "after a second at first, and after up to five minutes at last")
			})
		})
	}
}

// A CA's certificate is none for an agent, even one for the agent's own key.
func TestCertificateOfACAIsNotKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ca := newCA(t)
		s, stop := start(t, true, nil, func(a request) ([]byte, error) { return authority(t, ca, a), nil })
		_, problem := s.next()
		require.Contains(t, problem, "its certificate is one of a CA")
		stop()
		require.Empty(t, s.secret()["tls.crt"])
	})
}

// An agent that ends before it has the answer has used its token. The next one has the same key, for which the token is still good.
func TestAgentThatEndsWhileItEnrolls(t *testing.T) {
	for name, kept := range map[string]*pki.Pair{"without a Secret": nil, "with an old certificate": {Certificate: []byte("old"), Key: []byte("old")}} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ca := newCA(t)
				var first, second []byte
				s, stop := start(t, true, kept, func(a request) ([]byte, error) {
					first = a.key(t)
					return nil, status.Error(codes.Unavailable, "the answer is lost")
				})
				s.next()
				stop()
				require.NotEmpty(t, first)
				pending := s.secret()["enrollment.key"]
				require.NotEmpty(t, pending)

				stop = s.start(true, func(a request) ([]byte, error) {
					second = a.key(t)
					return signed(t, ca, a, lasting(24*time.Hour)), nil
				})
				message, _ := s.next()
				require.Equal(t, "Certificate issued by the principal", message)
				stop()
				require.Equal(t, first, second)
				require.Equal(t, pending, s.secret()["tls.key"])
				require.NotContains(t, s.secret(), "enrollment.key")
			})
		})
	}
}

// A token is not shown before its key is kept.
func TestKeyThatCannotBeKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s, stop := start(t, false, nil, func(request) ([]byte, error) { return nil, errors.New("not asked for") })
		stop()
		s.secrets.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("no right to create")
		})
		shown := 0
		stop = s.start(true, func(request) ([]byte, error) { shown++; return nil, errors.New("too early") })
		_, problem := s.next()
		require.Equal(t, "write the new key to Secret "+secretName+": no right to create", problem)
		stop()
		require.Zero(t, shown)
	})
}

// The token is for an agent that has no certificate: with a good one it is not shown to anybody.
func TestTokenIsShownOnlyWithoutACertificate(t *testing.T) {
	for name, c := range map[string]struct {
		validity func() pki.Validity
		of       string
		shown    bool
		level    slog.Level
	}{
		"good":      {func() pki.Validity { return lasting(24 * time.Hour) }, "berlin", false, slog.LevelInfo},
		"another's": {func() pki.Validity { return lasting(24 * time.Hour) }, "paris", false, slog.LevelWarn},
		"ended": {func() pki.Validity {
			return pki.Validity{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
		}, "berlin", true, slog.LevelInfo},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				ca := newCA(t)
				kept, err := ca.IssueClient(pki.ClientOptions{CommonName: c.of, Validity: c.validity()})
				require.NoError(t, err)
				shown := 0
				s, stop := start(t, true, &kept, func(a request) ([]byte, error) {
					if a.token != "" {
						shown++
					}
					return signed(t, ca, a, lasting(24*time.Hour)), nil
				})
				<-time.After(time.Hour)
				stop()
				said := <-s.logged
				if c.shown {
					require.Equal(t, 1, shown)
					require.NotEqual(t, kept.Key, s.secret()["tls.key"])
					require.Equal(t, "stays", string(s.secret()["ours"]), "what else is in the Secret")
					return
				}
				require.Zero(t, shown)
				require.Equal(t, kept.Key, s.secret()["tls.key"])
				require.Equal(t, "Enrollment token not used: there is a certificate that is valid; to enroll anew, delete the Secret and restart the agent", said.Message)
				require.Equal(t, c.level, said.Level)
				require.Equal(t, c.of, attribute(said, "certificate_of"))
				require.Equal(t, "berlin", attribute(said, "token_of"))
				require.Equal(t, "2000-01-02T00:00:00Z", attribute(said, "not_after"))
			})
		})
	}
}

// An agent asks for its next certificate when about two thirds of the life of the one before are over, and goes on asking while it gets none.
func TestRenewsAtTwoThirdsOfTheLife(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const life = 24 * time.Hour
		ca := newCA(t)
		kept, err := ca.IssueClient(pki.ClientOptions{CommonName: "berlin", Validity: lasting(life)})
		require.NoError(t, err)
		issued, refusals, began := time.Now(), 0, time.Now()
		keys := map[string]bool{string(kept.Key): true}
		var asked []time.Duration // after the issue of the certificate before
		s, stop := start(t, false, &kept, func(a request) ([]byte, error) {
			if refusals == 0 {
				asked = append(asked, time.Since(issued))
			}
			if time.Since(began) < 20*time.Hour {
				refusals++
				return nil, errors.New("not now")
			}
			issued, refusals = time.Now(), 0
			return signed(t, ca, a, lasting(life)), nil
		})
		message, problem := s.next()
		require.Equal(t, "Failed to get a certificate of the principal; retrying", message)
		require.Equal(t, `"not now"`, problem)
		for range 3 {
			message, _ = s.next()
			require.Equal(t, "Certificate issued by the principal", message)
			key := string(s.secret()["tls.key"])
			require.False(t, keys[key], "each has a key of its own")
			keys[key] = true
		}
		stop()
		require.Len(t, asked, 3)
		for _, after := range asked {
			require.InDelta(t, (life * 37 / 60).Hours(), after.Hours(), (life / 20).Hours(), "between two thirds and a tenth less")
		}
	})
}

// A principal whose certificates are old when they are issued does not have the agent ask all the time.
func TestCertificatesThatAreOldAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ca := newCA(t)
		kept, err := ca.IssueClient(pki.ClientOptions{CommonName: "berlin", Validity: lasting(time.Second)})
		require.NoError(t, err)
		requests := 0
		_, stop := start(t, false, &kept, func(a request) ([]byte, error) {
			requests++
			return signed(t, ca, a, pki.Validity{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Minute)}), nil
		})
		<-time.After(time.Minute + time.Second)
		stop()
		require.Equal(t, 12, requests)
	})
}
