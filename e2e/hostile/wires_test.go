package hostile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// nestedString reads a text of an object.
func nestedString(object *unstructured.Unstructured, path ...string) (string, bool, error) {
	return unstructured.NestedString(object.Object, path...)
}

// wireLies are about the stream itself, from either side.
func wireLies() []lie {
	return []lie{
		{
			who: agent, about: "any facet", sends: "events of unknown types, without attributes, with a version of 3 bytes, and with data that is no JSON",
			happens: "skipped, and counted once in a log line; the session goes on",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				for _, e := range []*pb.CloudEvent{
					{Id: "a", SpecVersion: "1.0", Source: "/agent", Type: "io.argoproj-labs.argocd-agent.newer"},
					{Id: "b", SpecVersion: "1.0", Source: "/agent", Type: "io.argoproj-labs.argocd-agent.put"},
					{Id: "c", SpecVersion: "1.0", Source: "/agent", Type: "io.argoproj-labs.argocd-agent.digest", Data: &pb.CloudEvent_BinaryData{BinaryData: []byte("{")}},
					{Id: "d", SpecVersion: "1.0", Source: "/agent", Type: "io.argoproj-labs.argocd-agent.put", Attributes: map[string]*pb.CloudEventAttributeValue{
						"facet": text("application"), "subject": text("x"), "seq": text("999999"),
						"version": {Attr: &pb.CloudEventAttributeValue_CeBytes{CeBytes: []byte("abc")}},
					}},
				} {
					s.fromManaged.send(t, e)
					s.fromAutonomous.send(t, e)
				}
				requireRefused(t, s.fromManaged.put(t, facets.Application, "lie", `{}`)) // it is still answered
				requireRefused(t, s.fromAutonomous.put(t, facets.GPGKeys, "lie", `{}`))
			},
		},
		{
			who: agent, about: "any facet", sends: "a facet that there is not",
			happens: "refused",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireRefused(t, s.fromManaged.put(t, "policy", "argocd-agent-policy", `{}`), "policy")
			},
		},
		{
			who: principal, about: "any facet", sends: "a facet that there is not, such as `policy`",
			happens: "refused",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireRefused(t, s.toManaged.put(t, "policy", "argocd-agent-policy", `{}`), "policy")
				requireNone(t, s.lab.Spoke(managedSpoke), in(configMaps(), "argocd-agent-policy"))
			},
		},
		{
			who: agent, about: "any facet", sends: "a name of 600 bytes",
			happens: "skipped: names have at most 512 bytes",
			by:      "internal/replication/wire.TestTextsAreBounded",
		},
		{
			who: agent, about: "application", sends: "20 Applications that the API server does not take, beside one that it does",
			happens: "each is refused for itself; the one is shown",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				for i := range 20 {
					requireRefused(t, s.fromAutonomous.put(t, facets.Application, converge.Key(fmt.Sprintf("lie-bad-%d", i)),
						`{"spec":{"project":"default","destination":{"namespace":`+strings.Repeat("1", i+1)+`}}}`))
				}
				requireDone(t, s.fromAutonomous.put(t, facets.Application, "good", `{`+specText+`}`))
				require.NotNil(t, get(t, s.lab.Hub, ofLiar("good")))
			},
		},
	}
}

// text is an attribute.
func text(value string) *pb.CloudEventAttributeValue {
	return &pb.CloudEventAttributeValue{Attr: &pb.CloudEventAttributeValue_CeString{CeString: value}}
}
