package guard_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
)

// show has HeldConfigMap show this, as programs that ran earlier did; nil deletes it.
func (s *apiServer) show(data map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setShown(data)
}

// setShown replaces the data of HeldConfigMap, or deletes it, and tells who watches. s.mu is held.
func (s *apiServer) setShown(data map[string]string) {
	before, revision := s.shown, strconv.FormatInt(s.revision.Add(1), 10)
	c := change{watch.Modified, &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: guard.HeldConfigMap, UID: "2", ResourceVersion: revision},
		Data:       data,
	}}
	switch {
	case data == nil:
		c.kind = watch.Deleted
	case before == nil:
		c.kind = watch.Added
	}
	if s.shown = c.object; data == nil {
		s.shown = nil
	}
	for w := range s.watchers {
		w <- c
	}
}

// patchShown is a merge patch of HeldConfigMap.
func (s *apiServer) patchShown(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var patch struct{ Data map[string]*string }
	if s.shown == nil || r.Header.Get("Content-Type") != "application/merge-patch+json" || json.NewDecoder(r.Body).Decode(&patch) != nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	data := make(map[string]string)
	maps.Copy(data, s.shown.Data)
	for key, text := range patch.Data {
		if delete(data, key); text != nil {
			data[key] = *text
		}
	}
	s.setShown(data)
	_ = json.NewEncoder(w).Encode(s.shown)
	s.held <- data
}

// createShown creates HeldConfigMap.
func (s *apiServer) createShown(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := &corev1.ConfigMap{}
	if s.shown != nil || json.NewDecoder(r.Body).Decode(object) != nil || object.Name != guard.HeldConfigMap {
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	}
	s.setShown(object.Data)
	_ = json.NewEncoder(w).Encode(s.shown)
	s.held <- object.Data
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Reason: reason, Code: int32(code)}
	_ = json.NewEncoder(w).Encode(status)
}

// watchShown is a watch of HeldConfigMap.
func (s *apiServer) watchShown(w http.ResponseWriter, r *http.Request) {
	changes := make(chan change, 100)
	s.mu.Lock()
	if s.shown != nil {
		changes <- change{watch.Added, s.shown}
	}
	end := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
	end.ResourceVersion = strconv.FormatInt(s.revision.Load(), 10)
	end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	changes <- change{watch.Bookmark, end}
	s.watchers[changes] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, changes)
	}()
	for {
		select {
		case c := <-changes:
			_ = json.NewEncoder(w).Encode(map[string]any{"type": c.kind, "object": c.object})
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// requireUnchanged fails if anything was written that the test did not wait for.
func (s *apiServer) requireUnchanged(t *testing.T) {
	t.Helper()
	require.Empty(t, s.held)
}
