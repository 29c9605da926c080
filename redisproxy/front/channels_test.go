package front_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/directory"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/redisproxy/front"
)

// pubsubReply is a message or a confirmation in either protocol.
func pubsubReply(protocol string, words ...string) string {
	begin := "*"
	if protocol == "3" {
		begin = ">"
	}
	text := begin + itoa(len(words)) + "\r\n"
	for _, word := range words {
		if word[0] == ':' {
			text += word + "\r\n"
			continue
		}
		text += bulk(word)
	}
	return text
}

// message is pubsubReply for a message, whose payload may be empty.
func message(protocol, channel, payload string) string {
	begin := map[string]string{"2": "*", "3": ">"}[protocol]
	return begin + "3\r\n" + bulk("message") + bulk(channel) + bulk(payload)
}

func TestSubscribeToHubAndAgentChannels(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"2", "3"} {
		t.Run("RESP"+protocol, func(t *testing.T) {
			t.Parallel()
			w := begin(t, setup{hubPrefix: "hub|", spokePrefix: "spoke|"})
			hub := w.client(t, 3)
			r := dial(t, w.address)
			r.do("HELLO", protocol)
			subscribed := "hub|" + channelHub
			r.mustSend(command("SUBSCRIBE", "new-revoked-token", subscribed, "hub|app|managed-resources|local|1.8.3") + command("PSUBSCRIBE", "x*"))
			require.Equal(t, pubsubReply(protocol, "subscribe", "new-revoked-token", ":1"), r.mustReceive())
			require.Equal(t, pubsubReply(protocol, "subscribe", subscribed, ":2"), r.mustReceive())
			// A message comes when the invalidation stream opens, since others may have been missed before.
			require.ElementsMatch(t, []string{
				pubsubReply(protocol, "subscribe", "hub|app|managed-resources|local|1.8.3", ":3"), pubsubReply(protocol, "psubscribe", "x*", ":4"),
				message(protocol, subscribed, ""),
			}, []string{r.mustReceive(), r.mustReceive(), r.mustReceive()})

			require.EqualValues(t, 1, w.spoke.Publish(t.Context(), "spoke|"+channelSpoke, "").Val())
			require.Equal(t, message(protocol, subscribed, ""), r.mustReceive())
			w.spoke.Publish(t.Context(), "spoke|app|managed-resources|other|1.8.3", "not followed")
			w.spoke.Publish(t.Context(), "spoke|"+channelSpoke, "payload")
			require.Equal(t, message(protocol, subscribed, "payload"), r.mustReceive())
			hub.Publish(t.Context(), "new-revoked-token", "id")
			require.Equal(t, message(protocol, "new-revoked-token", "id"), r.mustReceive())
			hub.Publish(t.Context(), "hub|app|managed-resources|local|1.8.3", "own")
			require.Equal(t, message(protocol, "hub|app|managed-resources|local|1.8.3", "own"), r.mustReceive())
			pong := map[string]string{"2": "*2\r\n" + bulk("pong") + bulk(""), "3": "+PONG\r\n"}[protocol]
			require.Equal(t, pong, r.do("PING"))
			if protocol == "3" {
				require.Equal(t, null("3"), r.do("GET", "hub|"+treeHub))
				require.Equal(t, "*2\r\n"+null("3")+null("3"), r.do("MGET", "a", "hub|"+treeHub))
				require.Equal(t, "+OK\r\n", r.do("SET", "a", "1"))
			} else {
				require.Contains(t, r.do("GET", "hub|"+treeHub), "-ERR Can't execute 'get'")
				require.Contains(t, r.do("GET", "a"), "-ERR Can't execute 'get'")
			}
			require.Equal(t, pubsubReply(protocol, "unsubscribe", subscribed, ":3"), r.do("UNSUBSCRIBE", subscribed))
			w.spoke.Publish(t.Context(), "spoke|"+channelSpoke, "not followed any more")
			require.Equal(t, pong, r.do("PING"))
			r.mustSend(command("UNSUBSCRIBE") + command("PUNSUBSCRIBE") + command("UNSUBSCRIBE") + command("PING"))
			require.Contains(t, r.mustReceive(), "unsubscribe")
			require.Contains(t, r.mustReceive(), ":1\r\n")
			require.Equal(t, pubsubReply(protocol, "punsubscribe", "x*", ":0"), r.mustReceive())
			require.Contains(t, r.mustReceive(), "unsubscribe")
			require.Equal(t, "+PONG\r\n", r.mustReceive())
			require.Equal(t, null(protocol), r.do("GET", "hub|"+treeHub))
		})
	}
}

func TestPatternSubscriptionsMatchAgentChannels(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	w.directory.SetOwner("west_guestbook", "west", "guestbook") // of another agent
	r := dial(t, w.address)
	require.Equal(t, pubsubReply("2", "psubscribe", "app|managed-resources|east_*", ":1"), r.do("PSUBSCRIBE", "app|managed-resources|east_*"))
	require.Equal(t, pubsubReply("2", "psubscribe", "app|managed-resources|west_*", ":2"), r.do("PSUBSCRIBE", "app|managed-resources|west_*"))
	require.Eventually(t, func() bool { return w.metric(t, "argocd_redisproxy_invalidation_streams", "") == 1 }, testTimeout, 5*time.Millisecond)
	w.spoke.Publish(t.Context(), channelSpoke, "x")
	require.Equal(t, pubsubReply("2", "pmessage", "app|managed-resources|east_*", channelHub, "x"), r.mustReceive())
	require.Contains(t, r.do("PUNSUBSCRIBE", "app|managed-resources|east_*"), ":1\r\n")
	w.spoke.Publish(t.Context(), channelSpoke, "y")
	require.Contains(t, r.do("PING"), "pong")
}

// A message that is published after a subscription was confirmed arrives.
func TestNoMessageIsLostAfterSubscriptionIsConfirmed(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	first := dial(t, w.address) // which opens the invalidation stream
	first.do("SUBSCRIBE", channelHub)
	require.Equal(t, message("2", channelHub, ""), first.mustReceive())
	var all errgroup.Group
	for i := range 20 {
		r := dial(t, w.address)
		all.Go(func() error {
			id := itoa(i)
			for range 10 {
				if err := r.expect(command("SUBSCRIBE", channelHub), pubsubReply("2", "subscribe", channelHub, ":1")); err != nil {
					return err
				}
				w.spoke.Publish(t.Context(), channelSpoke, id)
				for got := ""; !strings.HasSuffix(got, bulk(id)); { // others are those of other clients
					var err error
					if got, err = r.receive(); err != nil {
						return err
					}
				}
				if err := r.send(command("UNSUBSCRIBE", channelHub)); err != nil {
					return err
				}
				for got := ""; !strings.Contains(got, "unsubscribe"); {
					var err error
					if got, err = r.receive(); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
}

// A subscription to a channel of a disconnected agent succeeds, and gets a message when the agent connects: others may have been
// missed.
func TestSubscriberGetsMessageWhenAgentReconnects(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	w.leave()
	client := w.client(t, 3)
	subscriber := client.Subscribe(t.Context(), channelHub)
	defer func() { _ = subscriber.Close() }()
	_, err := subscriber.Receive(t.Context())
	require.NoError(t, err, "it succeeds at once")
	for range 3 {
		w.arrive()
		got, err := subscriber.ReceiveMessage(t.Context())
		require.NoError(t, err)
		require.Equal(t, channelHub, got.Channel)
		w.spoke.Publish(t.Context(), channelSpoke, "x")
		got, err = subscriber.ReceiveMessage(t.Context())
		require.NoError(t, err)
		require.Equal(t, "x", got.Payload)
		w.leave()
	}
	// An application may come to belong to an agent only then.
	w.arrive()
	require.NoError(t, subscriber.Subscribe(t.Context(), "app|managed-resources|late|1.8.3"))
	w.directory.SetOwner("late", east, "guestbook")
	for {
		got, err := subscriber.ReceiveMessage(t.Context())
		require.NoError(t, err)
		if got.Channel == "app|managed-resources|late|1.8.3" {
			return
		}
		w.spoke.Publish(t.Context(), channelSpoke, "x")
	}
}

// One client subscribes to channels of several agents.
func TestOneClientSubscribesToSeveralAgents(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	w.directory.Set(directory.Agent{Name: "west", Connected: true, Since: time.Now()})
	w.directory.SetOwner("west_shop", "west", "shop")
	subscriber := w.client(t, 3).Subscribe(t.Context(), channelHub, "app|managed-resources|west_shop|1.8.3")
	defer func() { _ = subscriber.Close() }()
	seen := map[string]bool{}
	for len(seen) < 2 {
		got, err := subscriber.ReceiveMessage(t.Context())
		require.NoError(t, err)
		seen[got.Channel] = true
	}
}

// A subscriber that does not read is disconnected when too much waits for it, and delays no other.
func TestSubscriberThatDoesNotReadIsDisconnected(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{limits: front.Limits{Backlog: 1 << 20}})
	stuck := dial(t, w.address)
	require.Contains(t, stuck.do("SUBSCRIBE", channelHub), ":1")
	subscriber := w.client(t, 3).Subscribe(t.Context(), channelHub)
	defer func() { _ = subscriber.Close() }()
	_, err := subscriber.Receive(t.Context())
	require.NoError(t, err)
	payload := string(make([]byte, 256<<10))
	messages := subscriber.Channel(redis.WithChannelSize(1000))
	for w.metric(t, "argocd_redisproxy_clients_overrun_total", "") == 0 {
		w.spoke.Publish(t.Context(), channelSpoke, payload)
		<-messages
	}
	w.spoke.Publish(t.Context(), channelSpoke, "still here")
	for m := range messages {
		if m.Payload == "still here" {
			break
		}
	}
}

// RESET ends subscriptions, and says so of none.
func TestResetEndsSubscriptions(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"2", "3"} {
		t.Run("RESP"+protocol, func(t *testing.T) {
			t.Parallel()
			w := begin(t, setup{})
			first := dial(t, w.address)
			first.do("SUBSCRIBE", channelHub)
			require.Equal(t, message("2", channelHub, ""), first.mustReceive())
			r := dial(t, w.address)
			r.do("HELLO", protocol)
			r.mustSend(command("SUBSCRIBE", channelHub, "other"))
			require.Equal(t, pubsubReply(protocol, "subscribe", channelHub, ":1"), r.mustReceive())
			require.Equal(t, pubsubReply(protocol, "subscribe", "other", ":2"), r.mustReceive())
			require.Equal(t, "+RESET\r\n", r.do("RESET"))
			w.spoke.Publish(t.Context(), channelSpoke, "not followed")
			require.Equal(t, message("2", channelHub, "not followed"), first.mustReceive())
			require.Equal(t, "*3\r\n"+bulk("unsubscribe")+null("2")+":0\r\n", r.do("UNSUBSCRIBE"))
			require.Equal(t, "+PONG\r\n", r.do("PING"))
			require.Equal(t, null("2"), r.do("GET", treeHub), "it may ask for anything")
			require.Equal(t, pubsubReply("2", "subscribe", channelHub, ":1"), r.do("SUBSCRIBE", channelHub))
			w.spoke.Publish(t.Context(), channelSpoke, "followed again")
			require.Equal(t, message("2", channelHub, "followed again"), r.mustReceive())
		})
	}
}

// A reply that looks like a message is a reply.
func TestReplyThatLooksLikeMessageIsReply(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	r := dial(t, w.address)
	r.do("HELLO", "3")
	require.Equal(t, pubsubReply("3", "subscribe", "x", ":1"), r.do("SUBSCRIBE", "x"))
	for _, word := range []string{"message", "pmessage", "smessage", "subscribe", "unsubscribe"} {
		require.Equal(t, ":3\r\n", r.do("RPUSH", word, word, "a", "b"))
		require.Equal(t, "*3\r\n"+bulk(word)+bulk("a")+bulk("b"), r.do("LRANGE", word, "0", "-1"))
		require.Equal(t, "+PONG\r\n", r.do("PING"))
	}
}

// A message that an agent publishes while a large reply is on its way comes before it or after it.
func TestMessagesDoNotSplitReplies(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	r := dial(t, w.address)
	r.do("HELLO", "3")
	value := strings.Repeat("x", 1<<20)
	require.Equal(t, "+OK\r\n", r.do("SET", "large", value))
	require.Equal(t, pubsubReply("3", "subscribe", channelHub, ":1"), r.do("SUBSCRIBE", channelHub))
	require.Equal(t, message("3", channelHub, ""), r.mustReceive())
	const count = 20
	var announcing sync.WaitGroup
	announcing.Go(func() {
		for range 50 * count {
			w.spoke.Publish(t.Context(), channelSpoke, "payload")
		}
	})
	defer announcing.Wait()
	r.mustSend(strings.Repeat(command("GET", "large"), count))
	for values := 0; values < count; {
		got := r.mustReceive()
		if got == message("3", channelHub, "payload") {
			continue
		}
		require.True(t, bulk(value) == got, "%.100q", got) //nolint:testifylint // a megabyte is not to be printed
		values++
	}
}

// Other push frames than messages are passed on too.
func TestClientTrackingAndMonitor(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	hub := w.client(t, 3)
	r := dial(t, w.address)
	r.do("HELLO", "3")
	require.Equal(t, "+OK\r\n", r.do("CLIENT", "TRACKING", "ON"))
	require.Equal(t, null("3"), r.do("GET", "a"))
	hub.Set(t.Context(), "a", "1", 0)
	require.Equal(t, ">2\r\n"+bulk("invalidate")+"*1\r\n"+bulk("a"), r.mustReceive())
	require.Equal(t, bulk("1"), r.do("GET", "a"))
	m := dial(t, w.address)
	require.Equal(t, "+OK\r\n", m.do("MONITOR"))
	hub.Set(t.Context(), "b", "1", 0)
	require.Contains(t, m.mustReceive(), `"b" "1"`)
	m.mustSend(command("PING"))
	heard := m.mustReceive() + m.mustReceive()
	require.Contains(t, heard, `"PING"`)
	require.Contains(t, heard, "+PONG\r\n")
}

// Many subscribe and unsubscribe at once, while an agent publishes.
func TestConcurrentSubscribeAndUnsubscribe(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	var clients errgroup.Group
	for range 8 {
		c := dial(t, w.address)
		clients.Go(func() error {
			for range 20 {
				if err := c.send(command("SUBSCRIBE", channelHub, "x") + command("UNSUBSCRIBE")); err != nil {
					return err
				}
				for confirmed := 0; confirmed < 4; {
					got, err := c.receive()
					if err != nil {
						return err
					}
					if strings.Contains(got, "subscribe") {
						confirmed++
					}
				}
				w.spoke.Publish(t.Context(), channelSpoke, "x")
			}
			return nil
		})
	}
	require.NoError(t, clients.Wait())
}
