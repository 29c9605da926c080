package keys_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
)

func TestParseKeys(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]keys.Key{
		"app|resources-tree|guestbook|1.8.3.gz":                  {Kind: keys.Tree, Name: "guestbook", Rest: "|1.8.3.gz"},
		"app|resources-tree|east_guestbook|1.8.3":                {Kind: keys.Tree, Name: "east_guestbook", Rest: "|1.8.3"},
		"app|resources-tree|east_guestbook|12|1.8.3.gz":          {Kind: keys.Tree, Name: "east_guestbook", Rest: "|12|1.8.3.gz"},
		"app|managed-resources|guestbook|1.8.3.gz":               {Kind: keys.Managed, Name: "guestbook", Rest: "|1.8.3.gz"},
		"cluster|info|https://proxy:9090?agentName=east|1.8.3":   {Kind: keys.Cluster, Name: "https://proxy:9090?agentName=east", Rest: "|1.8.3"},
		"cluster|info|https://a|b|1.8.3.gz":                      {Kind: keys.Cluster, Name: "https://a|b", Rest: "|1.8.3.gz"},
		"app|resources-tree|guestbook":                           {},
		"app|resources-tree||1.8.3":                              {},
		"app|resources-tree|guestbook|x|1.8.3":                   {},
		"app|resources-tree|guestbook|1|2|1.8.3":                 {},
		"app|resources-tree|guestbook|.gz":                       {},
		"app|managed-resources|guestbook|1|1.8.3":                {},
		"app|managed-resources|guestbook|":                       {},
		"app|other|guestbook|1.8.3":                              {},
		"cluster|info|1.8.3":                                     {},
		"cluster|info||1.8.3":                                    {},
		"git-refs|https://x|1.8.3":                               {},
		"":                                                       {},
		"app|":                                                   {},
		"app|resources-tree|" + strings.Repeat("a", 3000) + "|1": {},
	} {
		require.Equal(t, want, keys.Space{}.Key([]byte(path)), path)
		require.Equal(t, want, keys.Space{Prefix: "hub:"}.Key([]byte("hub:"+path)), path)
		require.Equal(t, keys.Key{}, keys.Space{Prefix: "hub:"}.Key([]byte(path)), path)
		if want.Kind != keys.None {
			require.Equal(t, path, want.Path(want.Name))
		}
	}
	require.Equal(t, "cluster|info|https://kubernetes.default.svc|1.8.3.gz", keys.Key{Kind: keys.Cluster, Rest: "|1.8.3.gz"}.LocalCluster())
}

func TestChannels(t *testing.T) {
	t.Parallel()
	space := keys.Space{Prefix: "p|"}
	key, ok := space.Channel("p|app|managed-resources|guestbook|1.8.3")
	require.True(t, ok)
	require.Equal(t, keys.Key{Kind: keys.Managed, Name: "guestbook", Rest: "|1.8.3"}, key)
	for _, other := range []string{"app|managed-resources|guestbook|1.8.3", "p|app|managed-resources|guestbook|1.8.3.gz", "p|app|resources-tree|a|1", "new-revoked-token", ""} {
		_, ok = space.Channel(other)
		require.False(t, ok, other)
	}
}

func TestTreeKeys(t *testing.T) {
	t.Parallel()
	space := keys.Space{Prefix: "hub:"}
	for want, f := range map[string]keys.Format{"1.8.3.gz": {Version: "1.8.3", Compressed: true}, "2": {Version: "2"}} {
		first, third := space.Tree("ns_guestbook", 0, f), space.Tree("ns_guestbook", 3, f)
		require.Equal(t, "hub:app|resources-tree|ns_guestbook|"+want, first)
		require.Equal(t, "hub:app|resources-tree|ns_guestbook|3|"+want, third)
		for _, raw := range []string{first, third} {
			key := space.Key([]byte(raw))
			require.Equal(t, keys.Tree, key.Kind)
			require.Equal(t, f, key.Format())
			require.Equal(t, raw == third, key.Sharded())
		}
	}
}

func TestNamesThatBeginAsKeysDo(t *testing.T) {
	t.Parallel()
	space := keys.Space{Prefix: "p|"}
	require.True(t, space.Begins("p|app|resources-tree|x", keys.Managed, keys.Tree))
	require.False(t, space.Begins("p|app|resources-tree|x", keys.Managed, keys.Cluster))
	require.False(t, space.Begins("app|resources-tree|x", keys.Tree))
	require.Equal(t, []string{"p|app|", "p|cluster|info|"}, space.Tracked())
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	require.Equal(t, `x\*\[y\]\?\^\\app|managed-resources|*`, keys.Space{Prefix: `x*[y]?^\`}.Pattern(keys.Managed))
	for pattern, head := range map[string]string{
		`x\*\[y\]\?\^\\app|*`: `x*[y]?^\app|`, "app|*": "app|", "*": "", "a?c": "a", "a[bc]": "a", `a\`: `a\`, "": "", "abc": "abc",
	} {
		require.Equal(t, head, keys.PatternHead(pattern), pattern)
	}
}

// A key that is taken apart can be put together again, and one that is called otherwise on the spoke is a key there.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{
		"app|resources-tree|a|1.8.3.gz", "papp|resources-tree|ns_a|3|1.8.3", "app|managed-resources|a|1", "cluster|info|https://x|1.8.3.gz", "|||", "app||",
	} {
		f.Add([]byte(seed), "p")
		f.Add([]byte(seed), "")
	}
	f.Fuzz(func(t *testing.T, raw []byte, prefix string) {
		space := keys.Space{Prefix: prefix}
		key := space.Key(raw)
		if key.Kind == keys.None {
			return
		}
		require.True(t, space.Maybe(raw))
		require.Equal(t, string(raw), prefix+key.Path(key.Name))
		require.NotEmpty(t, key.Name)
		require.Equal(t, keys.Key{Kind: key.Kind, Name: "other", Rest: key.Rest}, keys.Space{}.Key([]byte(key.Path("other"))))
		if key.Kind != keys.Cluster {
			require.NotContains(t, key.Name, "|")
		}
		require.True(t, space.Begins(string(raw), key.Kind))
		require.Equal(t, prefix+keys.Key{Kind: key.Kind}.Path(""), keys.PatternHead(space.Pattern(key.Kind)))
		if key.Kind == keys.Tree && !key.Sharded() {
			require.Equal(t, string(raw), space.Tree(key.Name, 0, key.Format()))
		}
		if channel, ok := space.Channel(string(raw)); ok {
			require.Equal(t, key, channel)
		}
	})
}
