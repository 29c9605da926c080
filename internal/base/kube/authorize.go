package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
)

const (
	// decisionTTL is how long what the API server said of a token is believed. That is the time of controller-runtime's filter
	// WithAuthenticationAndAuthorization, and kubelet's, for both answers of a TokenReview. maxDecisions is of how many.
	decisionTTL  = time.Minute
	maxDecisions = 1000
	// welcomeTTL is how long it is remembered that a token was allowed, which is then asked about again without a limit.
	welcomeTTL = time.Hour
	// The API server is asked about so many other tokens in a second. controller-runtime has such a limit from client-go, whose client asks
	// 20 times a second; ours asks without one. Anybody can make tokens up.
	unknownRate, unknownBurst = 5, 20
	// maxToken is how long a bearer token may be: longer than any of Kubernetes', and than what HTTP servers let through easily.
	maxToken = 16 << 10
	// reviewTimeout is how long the API server may take to decide.
	reviewTimeout = 10 * time.Second
)

// RequestFilter lets requests through to a handler, or answers them itself.
type RequestFilter func(next http.Handler) http.Handler

// Authorize returns a filter that lets those requests through whose bearer token the API server knows (TokenReview), and allows
// to do this to the path (SubjectAccessReview of a nonResourceURL): what controller-runtime's metrics servers do. Everybody
// else gets 401 or 403 with the reason, 429 when there are too many tokens that nobody knows, and 503 while the API server does not decide.
func Authorize(client kubernetes.Interface) RequestFilter {
	a := &authorizer{
		client: client, allowed: cache.NewLRUExpireCache(maxDecisions), refused: cache.NewLRUExpireCache(maxDecisions),
		welcome: cache.NewLRUExpireCache(maxDecisions), unknown: rate.NewLimiter(unknownRate, unknownBurst),
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !ok || token == "" || len(token) > maxToken {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "want the bearer token of a service account", http.StatusUnauthorized)
				return
			}
			d := a.decide(r.Context(), question{token, strings.ToLower(r.Method), r.URL.Path})
			if d.status != http.StatusOK {
				http.Error(w, d.reason, d.status)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// authorizer remembers what the API server said. Refusals are kept apart, so that tokens that somebody makes up push out no others.
type authorizer struct {
	client                    kubernetes.Interface
	allowed, refused, welcome *cache.LRUExpireCache // of decisions by their questions; welcome of those that were allowed lately
	unknown                   *rate.Limiter
}

// decide returns what the API server said, or says now.
func (a *authorizer) decide(ctx context.Context, q question) decision {
	if said, known := a.allowed.Get(q); known {
		return said.(decision)
	}
	if said, known := a.refused.Get(q); known {
		return said.(decision)
	}
	if _, welcome := a.welcome.Get(q); !welcome && !a.unknown.Allow() {
		return decision{http.StatusTooManyRequests, "too many requests with unknown bearer tokens: try again"}
	}
	said, err := ask(ctx, a.client, q)
	switch {
	case err != nil:
		return decision{http.StatusServiceUnavailable, "the API server did not decide: " + err.Error()}
	case said.status == http.StatusOK:
		a.allowed.Add(q, said, decisionTTL)
		a.welcome.Add(q, said, welcomeTTL)
	default:
		a.refused.Add(q, said, decisionTTL)
		a.welcome.Remove(q)
	}
	return said
}

// question is what the API server is asked.
type question struct{ token, verb, path string }

// decision is what it said.
type decision struct {
	status int
	reason string
}

// ask asks the API server whether the owner of a token may do something.
func ask(ctx context.Context, client kubernetes.Interface, q question) (decision, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	token, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: q.token},
	}, metav1.CreateOptions{})
	if err != nil {
		return decision{}, fmt.Errorf("token review: %w", err)
	}
	if !token.Status.Authenticated {
		return decision{http.StatusUnauthorized, "the API server does not know this bearer token"}, nil
	}
	user := token.Status.User
	extra := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	access, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: q.verb, Path: q.path},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return decision{}, fmt.Errorf("subject access review: %w", err)
	}
	if !access.Status.Allowed {
		return decision{http.StatusForbidden, fmt.Sprintf("%s may not %s %s: give it a ClusterRole with that nonResourceURL", user.Username, q.verb, q.path)}, nil
	}
	return decision{http.StatusOK, ""}, nil
}
