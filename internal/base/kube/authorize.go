package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
)

const (
	// decisionTTL is how long what the API server said of a token is believed, and maxDecisions of how many tokens. The times
	// are those of kubelet's, and of metrics servers that are built on controller-runtime.
	decisionTTL  = time.Minute
	maxDecisions = 1000
	// maxToken is how long a bearer token may be: longer than any of Kubernetes', and than what HTTP servers let through easily.
	maxToken = 16 << 10
	// reviewTimeout is how long the API server may take to decide.
	reviewTimeout = 10 * time.Second
)

// RequestFilter lets requests through to a handler, or answers them itself.
type RequestFilter func(next http.Handler) http.Handler

// Authorize returns a filter that lets those requests through whose bearer token the API server knows (TokenReview), and allows
// to do this to the path (SubjectAccessReview of a nonResourceURL): what controller-runtime's metrics servers do. Everybody
// else gets 401 or 403 with the reason, and 503 while the API server does not decide.
func Authorize(client kubernetes.Interface) RequestFilter {
	decisions := cache.NewLRUExpireCache(maxDecisions)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !ok || token == "" || len(token) > maxToken {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "want the bearer token of a service account", http.StatusUnauthorized)
				return
			}
			asked := question{token, strings.ToLower(r.Method), r.URL.Path}
			said, known := decisions.Get(asked)
			if !known {
				var err error
				if said, err = ask(r.Context(), client, asked); err != nil {
					http.Error(w, "the API server did not decide: "+err.Error(), http.StatusServiceUnavailable)
					return
				}
				decisions.Add(asked, said, decisionTTL)
			}
			if d := said.(decision); d.status != http.StatusOK {
				http.Error(w, d.reason, d.status)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
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
