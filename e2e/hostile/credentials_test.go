package hostile_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

const repositoryLabel = `"argocd.argoproj.io/secret-type":"repository"`

// credentialLies are a principal's about keys and credentials.
func credentialLies() []lie {
	var rows []lie
	for _, name := range []string{"argocd-agent-policy", "argocd-cm", "argocd-rbac-cm"} {
		rows = append(rows, lie{
			who: principal, about: "gpg-keys", sends: "the ConfigMap `" + name + "`",
			happens: "refused: the facet is `argocd-gpg-keys-cm` alone",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				ack := s.toManaged.put(t, facets.GPGKeys, converge.Key(name), `{"data":{"policy.yaml":"rules: []","evil":"true"}}`)
				requireRefused(t, ack, name)
				requireNone(t, s.lab.Spoke(managedSpoke), in(configMaps(), name))
			},
		})
	}
	for _, facet := range []converge.Facet{facets.Repository, facets.RepoCreds} {
		rows = append(rows, secretLies(facet)...)
	}
	return append(rows, lie{
		who: principal, about: "repository", sends: "a Secret by the name of another program's, such as `argocd-secret`",
		happens: "refused; the other's Secret stays as it is",
		try: func(t *testing.T, s *stage) {
			t.Helper()
			spoke := s.lab.Spoke(managedSpoke)
			create(t, spoke, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"argocd-secret"},"stringData":{"admin.password":"hash"}}`)
			before := get(t, spoke, in(secrets(), "argocd-secret"))
			ack := s.toManaged.put(t, facets.Repository, "argocd-secret", `{"labels":{`+repositoryLabel+`},"data":{"admin.password":"ZXZpbA=="}}`)
			requireRefused(t, ack, "argocd-secret")
			require.Equal(t, before, get(t, spoke, in(secrets(), "argocd-secret")))
			requireRefusedOrDone(t, s.toManaged.remove(t, facets.Repository, "argocd-secret", ""))
			require.Equal(t, before, get(t, spoke, in(secrets(), "argocd-secret")))
		},
	})
}

// secretLies are about a Secret that is not of the facet's use.
func secretLies(facet converge.Facet) []lie {
	use := string(facet)
	var rows []lie
	for _, other := range []string{"cluster", "repository", "repo-creds", "scm-creds", "repository-write", ""} {
		if other == use {
			continue
		}
		sends := "a Secret whose label `secret-type` is `" + other + "`"
		labels := fmt.Sprintf(`{"argocd.argoproj.io/secret-type":%q}`, other)
		if other == "" {
			sends, labels = "a Secret without the label `secret-type`", `{}`
		}
		name := converge.Key("lie-" + use + "-" + other + "x")
		rows = append(rows, lie{
			who: principal, about: use, sends: sends, happens: "refused: the facet has Secrets of its own use only",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireRefused(t, s.toManaged.put(t, facet, name, `{"labels":`+labels+`,"data":{"url":"aHR0cHM6Ly94"}}`))
				requireNone(t, s.lab.Spoke(managedSpoke), in(secrets(), string(name)))
			},
		})
	}
	for _, kind := range []string{"kubernetes.io/service-account-token", "kubernetes.io/tls", "helm.sh/release.v1"} {
		name := converge.Key("lie-" + use + "-type")
		rows = append(rows, lie{
			who: principal, about: use, sends: "a Secret of type `" + kind + "`", happens: "refused: the type is not Opaque",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				payload := fmt.Sprintf(`{"labels":{"argocd.argoproj.io/secret-type":%q},"type":%q,`+
					`"annotations":{"kubernetes.io/service-account.name":"default"},"data":{}}`, use, kind)
				requireRefused(t, s.toManaged.put(t, facet, name, payload), "Opaque")
				requireNone(t, s.lab.Spoke(managedSpoke), in(secrets(), string(name)))
			},
		})
	}
	return append(rows, lie{
		who: principal, about: use, sends: "labels and annotations that mean something to other programs, an owner and finalizers",
		happens: "the Secret is made with Argo CD's own labels and annotations only",
		try: func(t *testing.T, s *stage) {
			t.Helper()
			name := "lie-" + use + "-decorated"
			ack := s.toManaged.put(t, facet, converge.Key(name), fmt.Sprintf(
				`{"labels":{"argocd.argoproj.io/secret-type":%q,"cert-manager.io/next-private-key":"true"},`+
					`"annotations":{"reflector.v1.k8s.emberstack.com/reflection-allowed":"true"},"finalizers":["example.com/stuck"],`+
					`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}],"data":{"url":"aHR0cHM6Ly94"}}`, use))
			if ack.Code == converge.Refused {
				requireNone(t, s.lab.Spoke(managedSpoke), in(secrets(), name))
				return
			}
			requireDone(t, ack)
			made := get(t, s.lab.Spoke(managedSpoke), in(secrets(), name))
			require.NotNil(t, made)
			require.NotContains(t, made.GetLabels(), "cert-manager.io/next-private-key")
			require.NotContains(t, made.GetAnnotations(), "reflector.v1.k8s.emberstack.com/reflection-allowed")
			require.Empty(t, made.GetFinalizers())
			require.Empty(t, made.GetOwnerReferences())
		},
	})
}

// requireRefusedOrDone checks that there was an answer that is no retry: to do nothing may be either.
func requireRefusedOrDone(t *testing.T, ack converge.Ack) {
	t.Helper()
	require.NotEqual(t, converge.Retry, ack.Code, "reason: %s", ack.Reason)
}
