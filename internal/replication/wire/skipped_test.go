package wire_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
)

// nonsense is an event of a known type that cannot be decoded.
func nonsense(kind, data string) *pb.CloudEvent {
	return &pb.CloudEvent{
		Type: "io.argoproj-labs.argocd-agent." + kind, Data: &pb.CloudEvent_BinaryData{BinaryData: []byte(data)},
	}
}

// complaining runs a test, with a fake clock, on a stream whose peer has said hello. log returns what was logged since it was
// called last.
func complaining(t *testing.T, test func(c *cable, log func() string)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		c := newCable()
		s := c.open("/principal", slog.New(slog.NewTextHandler(&text, nil)))
		go func() { c.in <- nonsense("hello", "{}") }()
		_, err := recvHello(t, s, c.end)
		require.NoError(t, err)
		wait := drain(s)
		test(c, func() string {
			synctest.Wait() // nobody writes any more
			defer text.Reset()
			return text.String()
		})
		c.end()
		wait()
		require.LessOrEqual(t, strings.Count(text.String(), "\n"), 1)
	})
}

// A peer cannot fill the log, neither by many events nor by large ones.
func TestSkippedEventsAreLoggedAtALimitedRate(t *testing.T) {
	complaining(t, func(c *cable, log func() string) {
		for range 10_000 {
			c.in <- nonsense("digest", "{")
		}
		require.Equal(t, 5, strings.Count(log(), "Skipped event that cannot be decoded"))
		after(time.Minute)
		c.in <- nonsense("digest", "{")
		line := log()
		require.Equal(t, 1, strings.Count(line, "\n"))
		require.Contains(t, line, "left_out=9995")
		c.in <- nonsense("digest", "{")
		require.Empty(t, log())
		after(time.Hour)
		c.in <- nonsense("digest", "{")
		require.Contains(t, log(), "left_out=1\n")
	})
}

func TestOmittedLogLinesAreCountedAtTheEnd(t *testing.T) {
	var text bytes.Buffer
	c := newCable()
	s := c.open("/principal", slog.New(slog.NewTextHandler(&text, nil)))
	go func() { c.in <- nonsense("hello", "{}") }()
	_, err := recvHello(t, s, c.end)
	require.NoError(t, err)
	wait := drain(s)
	for range 12 {
		c.in <- nonsense("put", "")
	}
	c.end()
	wait()
	require.Contains(t, text.String(), `msg="Skipped more events that cannot be decoded" left_out=7`)
}

func TestALogLineShowsLittleOfAPeersText(t *testing.T) {
	const megabytes = 3 << 20
	text := func(s string) *pb.CloudEventAttributeValue {
		return &pb.CloudEventAttributeValue{Attr: &pb.CloudEventAttributeValue_CeString{CeString: s}}
	}
	number := strings.Repeat("9", megabytes)
	for name, e := range map[string]*pb.CloudEvent{
		"seq":    {Type: nonsense("delete", "").Type, Attributes: map[string]*pb.CloudEventAttributeValue{"seq": text(long(megabytes))}},
		"result": {Type: nonsense("ack", "").Type, Attributes: map[string]*pb.CloudEventAttributeValue{"seq": text("1"), "result": text(long(megabytes))}},
		"a type that is long, and a facet": {Type: long(megabytes),
			Attributes: map[string]*pb.CloudEventAttributeValue{"facet": text(long(megabytes))}},
		"a number":    nonsense("bucket-request", `{"resync":`+number+`}`),
		"a bucket":    nonsense("digest", `{"buckets":{"`+number+`":"0"}}`),
		"a digest":    nonsense("digest", `{"buckets":{"1":"`+number+`"}}`),
		"a version":   nonsense("bucket-entries", `{"entries":[{"key":"a","version":"`+number+`"}]}`),
		"a character": nonsense("bucket-request", strings.Repeat("\n", megabytes)+"\x00"),
	} {
		complaining(t, func(c *cable, log func() string) {
			c.in <- e
			line := log()
			require.Contains(t, line, "Skipped event that cannot be decoded", name)
			require.Less(t, len(line), 1000, name)
		})
	}
}

// Before its hello a peer writes nothing into the log: it could open one stream after the other. Whoever waits for the
// hello learns what came instead.
func TestNothingIsLoggedBeforeTheHello(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		c := newCable()
		s := c.open("/principal", slog.New(slog.NewTextHandler(&text, nil)))
		go func() {
			for range 100 {
				c.in <- nonsense("hello", `{"oldest":`+strings.Repeat("9", 1<<20)+`}`)
			}
			c.end()
		}()
		_, err := recvHello(t, s, c.end)
		require.ErrorIs(t, err, errLost)
		require.ErrorContains(t, err, "100 events came that cannot be decoded, the last: io.argoproj-labs.argocd-agent.hello: json")
		require.Less(t, len(err.Error()), 500)
		require.Empty(t, text.String())
	})
}
