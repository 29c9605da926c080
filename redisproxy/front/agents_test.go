package front_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/redistest"
)

// null is what each protocol has for nothing.
func null(protocol string) string { return map[string]string{"2": "$-1\r\n", "3": "_\r\n"}[protocol] }

func TestAgentKeysAreReadFromTheAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]setup{
		"no prefixes": {}, "a prefix on the hub": {hubPrefix: "hub|"}, "prefixes on both": {hubPrefix: "h", spokePrefix: "spoke*["},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := begin(t, c)
			theirs := map[string]string{
				treeSpoke: "tree", "app|resources-tree|guestbook|3|1.8.3.gz": "shard", "app|managed-resources|guestbook|1.8.3": "plain",
			}
			for key, value := range theirs {
				require.NoError(t, w.spoke.Set(t.Context(), c.spokePrefix+key, value, 0).Err())
			}
			require.NoError(t, w.spoke.Set(t.Context(), c.spokePrefix+"app|resources-tree|other|1.8.3", "not ours", 0).Err())
			for _, protocol := range []string{"2", "3"} {
				r := dial(t, w.address)
				r.do("HELLO", protocol)
				require.Equal(t, "+OK\r\n", r.do("SET", "own", "hub"))
				tree := c.hubPrefix + treeHub
				require.Equal(t, bulk("tree"), r.do("gEt", tree))
				require.Equal(t, bulk("shard"), r.do("GET", c.hubPrefix+"app|resources-tree|east_guestbook|3|1.8.3.gz"))
				require.Equal(t, bulk("plain"), r.do("GET", c.hubPrefix+"app|managed-resources|east_guestbook|1.8.3"))
				missing := c.hubPrefix + "app|managed-resources|east_guestbook|9.9.9"
				require.Equal(t, null(protocol), r.do("GET", missing))
				require.Equal(t, null(protocol), r.do("GET", c.hubPrefix+"app|resources-tree|other|1.8.3"), "nobody's: the hub's own")
				require.Equal(t, "*4\r\n"+bulk("tree")+bulk("hub")+null(protocol)+null(protocol), r.do("MGET", tree, "own", missing, "x"))
				require.Equal(t, ":3\r\n", r.do("EXISTS", tree, "own", missing, tree))
				require.Equal(t, ":1\r\n", r.do("EXISTS", tree))
				require.Equal(t, ":4\r\n", r.do("STRLEN", tree))
				require.Equal(t, ":0\r\n", r.do("STRLEN", missing))
				require.Equal(t, ":-1\r\n", r.do("TTL", tree))
				require.Equal(t, ":-2\r\n", r.do("PTTL", missing))
				require.Equal(t, "+string\r\n", r.do("TYPE", tree))
				require.Equal(t, "+none\r\n", r.do("TYPE", missing))
				for _, words := range [][]string{{"SET", tree, "x"}, {"del", "own", tree}, {"RENAME", tree, "x"}, {"MSET", "own", "1", tree, "2"}, {"EXPIRE", tree, "1"}} {
					require.Contains(t, r.do(words...), "-ERR "+strings.ToLower(words[0])+": "+treeSpoke+" belongs to an agent, and can only be read")
				}
				for _, word := range []string{"GET", "TTL", "TYPE"} {
					require.Contains(t, r.do(word, tree, "x"), "-ERR wrong number of arguments")
				}
				require.Equal(t, bulk("hub"), r.do("GET", "own"))
				require.Contains(t, r.do("HSET", "own", "f", "v"), "-WRONGTYPE")
				require.Contains(t, r.do("MGET", tree, "own"), bulk("hub"))
			}
		})
	}
}

// The hub's Redis decides about agents' keys too, and refuses in its own words.
func TestUnauthenticatedClientReadsNoAgentKeys(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{redisArgs: []string{"--requirepass", "secret"}})
	w.spoke.Set(t.Context(), treeSpoke, "tree", 0)
	const refused = "-NOAUTH Authentication required.\r\n"
	r := dial(t, w.address)
	for _, words := range [][]string{{"GET", treeHub}, {"SET", treeHub, "x"}, {"MGET", "a", treeHub}, {"GET", "a"}, {"SUBSCRIBE", channelHub}} {
		require.Equal(t, refused, r.do(words...), "%q", words)
	}
	require.Zero(t, w.agent.Commands("GET"), "somebody unknown causes nothing on a spoke")
	require.Zero(t, w.agent.Commands("HELLO"))
	require.Contains(t, r.do("AUTH", "wrong"), "-WRONGPASS")
	require.Contains(t, r.do("HELLO", "3", "AUTH", "default", "wrong"), "-WRONGPASS")
	require.Equal(t, refused, r.do("GET", treeHub))
	r.mustSend(command("AUTH", "secret") + command("GET", treeHub) + command("SET", "a", "1") + command("GET", treeHub))
	for _, want := range []string{"+OK\r\n", bulk("tree"), "+OK\r\n", bulk("tree")} {
		require.Equal(t, want, r.mustReceive())
	}
	require.Equal(t, "+RESET\r\n", r.do("RESET"))
	require.Equal(t, refused, r.do("GET", treeHub))
	require.Contains(t, r.do("HELLO", "3", "AUTH", "default", "secret", "SETNAME", "me"), "%7")
	require.Equal(t, bulk("tree"), r.do("GET", treeHub))

	// Each client has the rights of its own user.
	hub := w.client(t, 3, func(o *redis.Options) { o.Password = "secret" })
	require.NoError(t, hub.Do(t.Context(), "ACL", "SETUSER", "reader", "on", ">pw", "~*", "+@read", "+ping").Err())
	direct := dial(t, w.hub.Address)
	direct.do("AUTH", "reader", "pw")
	denied := direct.do("SET", "a", "2")
	require.Contains(t, denied, "-NOPERM")
	var clients errgroup.Group
	for n := range 8 {
		c := dial(t, w.address)
		user, password, written := "default", "secret", "+OK\r\n"
		if n%2 == 0 {
			user, password = "reader", "pw"
			written = denied
		}
		require.Equal(t, "+OK\r\n", c.do("AUTH", user, password))
		clients.Go(func() error {
			for range 50 {
				if err := c.expect(command("SET", "a", "2")+command("GET", treeHub), written, bulk("tree")); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, clients.Wait())
}

// A user may read of agents' keys what Redis would let it read of its own.
func TestAgentKeysAreReadWithTheRightsOfTheUser(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	w.spoke.Set(t.Context(), treeSpoke, "tree", 0)
	hub := w.client(t, 3)
	require.NoError(t, hub.Do(t.Context(), "ACL", "SETUSER", "some", "on", "nopass", "~app|resources-tree|*", "+get").Err())
	r := dial(t, w.address)
	require.Equal(t, "+OK\r\n", r.do("AUTH", "some", ""))
	require.Equal(t, bulk("tree"), r.do("GET", treeHub))
	require.Contains(t, r.do("GET", stateHub), "-NOPERM")
	require.Contains(t, r.do("STRLEN", treeHub), "-NOPERM")
	require.NoError(t, hub.Do(t.Context(), "ACL", "DELUSER", "some").Err())
	r.mustSend(command("GET", treeHub))
	r.requireClosed() // Redis has disconnected it
}

// Who has let go of its name causes nothing on a spoke, however soon it asks.
func TestNothingIsAskedOfAnAgentAfterReset(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{redisArgs: []string{"--requirepass", "secret"}})
	r := dial(t, w.address)
	r.mustSend(command("AUTH", "secret") + command("PING") + command("RESET") + command("GET", treeHub) + command("SET", treeHub, "x"))
	for _, want := range []string{"+OK\r\n", "+PONG\r\n", "+RESET\r\n", "-NOAUTH Authentication required.\r\n", "-NOAUTH Authentication required.\r\n"} {
		require.Equal(t, want, r.mustReceive())
	}
	require.Zero(t, w.agent.Commands("GET"))
	require.Zero(t, w.agent.Commands("HELLO"))
}

// A user that needs no password is still not the one that clients are at first.
func TestUserWithoutPassword(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	hub := w.client(t, 3)
	require.NoError(t, hub.Do(t.Context(), "ACL", "SETUSER", "guest", "on", "nopass", "~*", "+get").Err())
	one, two := dial(t, w.address), dial(t, w.address)
	require.Equal(t, "+OK\r\n", one.do("AUTH", "guest", ""))
	require.Contains(t, two.do("HELLO", "2", "AUTH", "guest", ""), "*14")
	for range 20 {
		for _, c := range []*rawClient{one, two} {
			require.Contains(t, c.do("SET", "a", "1"), "-NOPERM")
			require.Equal(t, null("2"), c.do("GET", "a"))
		}
	}
}

// Who a client is, Redis reads off its HELLO, and Redis is never tried with credentials that nobody gave.
func TestHelloWithOptions(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{redisArgs: []string{"--requirepass", "secret"}})
	direct := redistest.Client(t, w.hub.Address, 3, func(o *redis.Options) { o.Password = "secret" })
	for _, user := range []string{"auth", "setname"} {
		require.NoError(t, direct.Do(t.Context(), "ACL", "SETUSER", user, "on", ">auth", "~*", "+@all").Err())
	}
	for want, options := range map[string][][]string{
		"default": {
			{"AUTH", "default", "secret", "SETNAME", "auth", "SETNAME", "me"}, {"SETNAME", "auth", "AUTH", "default", "secret"},
			{"SetName", "Auth", "Auth", "default", "secret", "setname", "AUTH"},
		},
		"auth":    {{"AUTH", "auth", "auth", "SETNAME", "x"}, {"AUTH", "default", "secret", "SETNAME", "AUTH", "AUTH", "auth", "auth"}},
		"setname": {{"AUTH", "setname", "auth"}, {"SETNAME", "setname", "AUTH", "setname", "auth", "SETNAME", "y"}},
	} {
		for _, o := range options {
			r := dial(t, w.address)
			require.Contains(t, r.do(append([]string{"HELLO", "3"}, o...)...), "%7", "%q", o)
			require.Equal(t, bulk(want), r.do("ACL", "WHOAMI"), "%q", o)
			require.Equal(t, "+OK\r\n", r.do("SET", "a", "1"), "%q", o)
			refused, err := direct.Do(t.Context(), "ACL", "LOG").Slice()
			require.NoError(t, err)
			require.Empty(t, refused, "%q", o)
		}
	}
}

// An agent that is disconnected or slow delays nobody but who reads its keys, and closes nobody's connection.
func TestSlowOrDisconnectedAgentDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{timeout: 3 * time.Second})
	w.spoke.Set(t.Context(), treeSpoke, "tree", 0)
	w.spoke.Set(t.Context(), "app|managed-resources|guestbook|1.8.3.gz", "state", 0)
	other, r := dial(t, w.address), dial(t, w.address)
	require.Eventually(t, func() bool { // until the invalidation stream is open
		return r.do("GET", treeHub) == bulk("tree") && w.metric(t, "argocd_redisproxy_cache_hits_total", "fresh") > 0
	}, testTimeout, time.Millisecond)
	w.agent.HoldReplies()
	r.mustSend(command("SET", "a", "1") + command("GET", stateHub) + command("GET", treeHub) + command("GET", "a"))
	require.Equal(t, "+OK\r\n", r.mustReceive())
	for range 50 {
		require.Equal(t, "+OK\r\n", other.do("SET", "b", "1"))
		require.Equal(t, bulk("tree"), other.do("GET", treeHub))
	}
	require.Contains(t, r.mustReceive(), `-ERR agent "east" did not answer`)
	require.Equal(t, bulk("tree"), r.mustReceive())
	require.Equal(t, bulk("1"), r.mustReceive())
	w.agent.Release()
	require.Eventually(t, func() bool { return r.do("GET", stateHub) == bulk("state") }, testTimeout, time.Millisecond)

	w.leave()
	require.Equal(t, bulk("tree"), r.do("GET", treeHub), "what was known last")
	require.GreaterOrEqual(t, w.metric(t, "argocd_redisproxy_cache_hits_total", "stale"), 1.0)
	const unknown = "app|resources-tree|east_guestbook|1|1.8.3.gz"
	require.Contains(t, r.do("GET", unknown), `-ERR agent "east" is not connected since 2026-01-02T03:04:05Z`)
	require.Contains(t, r.do("MGET", "a", unknown), `-ERR agent "east" is not connected`)
	require.Equal(t, "*2\r\n"+bulk("1")+bulk("tree"), r.do("MGET", "a", treeHub))
	w.arrive()
	require.Eventually(t, func() bool { return r.do("GET", unknown) == null("2") }, testTimeout, time.Millisecond)
}

// An agent may die in the middle of an answer.
func TestAgentDisconnectsDuringRead(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	w.spoke.Set(t.Context(), treeSpoke, strings.Repeat("x", 1<<20), 0)
	r := dial(t, w.address)
	w.agent.HoldReplies()
	r.mustSend(command("GET", treeHub) + command("PING"))
	w.agent.WaitForCommands(t, func(asked map[string]int) bool { return asked["GET"] == 1 })
	w.agent.Disconnect()
	require.Contains(t, r.mustReceive(), `-ERR agent "east" did not answer`)
	require.Equal(t, "+PONG\r\n", r.mustReceive())
	w.agent.Release()
	w.agent.Reconnect()
	require.Equal(t, bulk(strings.Repeat("x", 1<<20)), r.do("GET", treeHub))
}

func TestClusterInfoComesFromTheAgent(t *testing.T) {
	t.Parallel()
	w := begin(t, setup{})
	const plain, zipped = "cluster|info|" + server + "|1.8.3", "cluster|info|" + server + "|1.8.3.gz"
	client := w.client(t, 3)
	read := func(key string) map[string]any {
		value, err := client.Get(t.Context(), key).Bytes()
		require.NoError(t, err)
		if key == zipped {
			reader, err := gzip.NewReader(bytes.NewReader(value))
			require.NoError(t, err)
			value, err = io.ReadAll(reader)
			require.NoError(t, err)
		}
		var info map[string]any
		require.NoError(t, json.Unmarshal(value, &info))
		return info
	}
	state := func(info map[string]any) map[string]any { return info["connectionState"].(map[string]any) }
	for _, key := range []string{plain, zipped} {
		info := read(key)
		require.Equal(t, "Successful", state(info)["status"], "a healthy agent is never failed, also when nothing is known yet")
		require.EqualValues(t, 0, info["applicationsCount"])
	}
	const theirs = `{"connectionState":{"status":"Unknown","message":"x","attemptedAt":null},"serverVersion":"1.34","applicationsCount":7,` +
		`"cacheInfo":{"resourcesCount":70,"apisCount":9},"apiVersions":["v1"],"added":{"later":1}}`
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, err := io.WriteString(writer, theirs)
	require.NoError(t, err)
	require.NoError(t, writer.Close())
	for end, value := range map[string]any{"": theirs, ".gz": packed.Bytes()} {
		require.NoError(t, w.spoke.Set(t.Context(), "cluster|info|https://kubernetes.default.svc|1.8.3"+end, value, 0).Err())
	}
	require.NoError(t, client.Set(t.Context(), zipped, "what the hub thinks", 0).Err())
	for _, key := range []string{plain, zipped} {
		require.Eventually(t, func() bool { return read(key)["serverVersion"] == "1.34" }, testTimeout, 5*time.Millisecond)
		info := read(key)
		require.Equal(t, "Successful", state(info)["status"])
		require.Contains(t, state(info)["message"], `agent "east" is connected since 20`)
		require.NotEmpty(t, state(info)["attemptedAt"])
		require.EqualValues(t, 7, info["applicationsCount"])
		require.EqualValues(t, 70, info["cacheInfo"].(map[string]any)["resourcesCount"])
		require.EqualValues(t, map[string]any{"later": 1.0}, info["added"])
	}
	w.directory.SetLost(time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC), errors.New("connection refused"))
	for _, key := range []string{plain, zipped} {
		info := read(key)
		require.Equal(t, "Unknown", state(info)["status"])
		require.Equal(t, "2026-05-06T07:08:09Z", state(info)["attemptedAt"], "nobody has looked since")
		require.Contains(t, state(info)["message"], `whether agent "east" is connected is not known`)
		require.EqualValues(t, 7, info["applicationsCount"], "what was known last")
	}
	w.directory.SetLost(time.Time{}, nil)
	w.leave()
	for _, key := range []string{plain, zipped} {
		info := read(key)
		require.Equal(t, "Failed", state(info)["status"])
		require.Contains(t, state(info)["message"], `agent "east" is not connected since 2026-01-02T03:04:05Z`)
		require.Equal(t, "2026-01-02T03:04:05Z", state(info)["attemptedAt"])
		require.EqualValues(t, 7, info["applicationsCount"], "what was known last")
	}
}

// The agent's server and redisproxy understand each other, whatever the prefix of the keys.
func TestAgainstTheAgentsRedisServer(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "spoke|", `s*[p]?o^k\e|`} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			againstTheAgentsRedisServer(t, prefix)
		})
	}
}

func againstTheAgentsRedisServer(t *testing.T, prefix string) {
	t.Helper()
	w := begin(t, setup{agentsEnd: true, hubPrefix: "hub|", spokePrefix: prefix})
	w.spoke.Set(t.Context(), prefix+treeSpoke, "one", 0)
	follower := w.client(t, 3).Subscribe(t.Context(), "hub|"+channelHub)
	defer func() { _ = follower.Close() }()
	_, err := follower.Receive(t.Context()) // once it is subscribed, it gets a message when the stream opens
	require.NoError(t, err)
	client := w.client(t, 2)
	require.Equal(t, "one", client.Get(t.Context(), "hub|"+treeHub).Val())
	require.Eventually(t, func() bool {
		require.Equal(t, "one", client.Get(t.Context(), "hub|"+treeHub).Val())
		return w.metric(t, "argocd_redisproxy_cache_hits_total", "fresh") > 0
	}, testTimeout, time.Millisecond)
	_, err = follower.ReceiveMessage(t.Context())
	require.NoError(t, err)
	w.spoke.Set(t.Context(), prefix+treeSpoke, "two", 0)
	w.spoke.Publish(t.Context(), prefix+channelSpoke, "changed")
	for message, err := follower.ReceiveMessage(t.Context()); message.Payload != "changed"; message, err = follower.ReceiveMessage(t.Context()) {
		require.NoError(t, err)
	}
	require.Equal(t, "two", client.Get(t.Context(), "hub|"+treeHub).Val())
	require.ErrorIs(t, client.Get(t.Context(), "hub|"+stateHub).Err(), redis.Nil)
	require.Contains(t, client.Get(t.Context(), "hub|cluster|info|"+server+"|1.8.3").Val(), "Successful")
}
