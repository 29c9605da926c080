package argocd

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
)

// withheld is what an API server said to a write of an object that nobody may read in a log, without its words: it quotes what
// it cannot decode, and admission webhooks may quote anything. Errors travel to the other side, and into the logs of both.
type withheld struct {
	code    int32
	reason  metav1.StatusReason
	webhook string // that denied it, if one did
	foreign bool   // it was not the API server that said it
}

var _ apierrors.APIStatus = withheld{}

// withhold returns an error without an API server's words, if it has any.
func withhold(err error) error {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return err
	}
	status := answer.Status()
	w := withheld{code: status.Code, reason: status.Reason, foreign: kube.IsForeign(err)}
	if rest, ok := strings.CutPrefix(status.Message, webhookPrefix); ok {
		w.webhook, _, _ = strings.Cut(rest, `"`)
	}
	return w
}

// Error says what may be said.
func (w withheld) Error() string {
	who := "the API server"
	switch {
	case w.webhook != "":
		who = fmt.Sprintf("the admission webhook %q", w.webhook)
	case w.foreign:
		who = "it"
	}
	return fmt.Sprintf("%s answered %d %s; its words are withheld, since they may quote the Secret", who, w.code, http.StatusText(int(w.code)))
}

// Status is what decisions need.
func (w withheld) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Code: w.code, Reason: w.reason}
}

// String names the object, and says nothing of what is in it: Kubernetes' libraries log objects now and then.
func (o *Object) String() string { return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name) }

// LogValue is what a structured log has of the object.
func (o *Object) LogValue() slog.Value { return slog.StringValue(o.String()) }

// String names the object, and says nothing of what is in it.
func (r *Record) String() string { return r.Name.String() }

// LogValue is what a structured log has of the object.
func (r *Record) LogValue() slog.Value { return slog.StringValue(r.String()) }

// String says nothing of the content.
func (c Content) String() string {
	return fmt.Sprintf("content of %d keys", len(c.Data)+len(c.BinaryData))
}

// LogValue is what a structured log has of the content.
func (c Content) LogValue() slog.Value { return slog.StringValue(c.String()) }
