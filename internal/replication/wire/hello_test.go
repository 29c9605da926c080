package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

func speaks(oldest, newest int) wire.Hello {
	return wire.Hello{Oldest: oldest, Newest: newest, Build: "v9"}
}

func TestAgree(t *testing.T) {
	for name, c := range map[string]struct {
		principal, agent wire.Hello
		want             int
	}{
		"the same":                  {speaks(1, 1), speaks(1, 1), 1},
		"the agent is older":        {speaks(1, 2), speaks(1, 1), 1},
		"the principal is older":    {speaks(1, 1), speaks(1, 2), 1},
		"they overlap by one":       {speaks(3, 5), speaks(1, 3), 3},
		"one speaks more than both": {speaks(1, 9), speaks(4, 5), 5},
		"this build with itself":    {wire.NewHello(), wire.NewHello(), wire.NewestProtocol},
	} {
		got, err := wire.Agree(c.principal, c.agent)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

func TestDisagree(t *testing.T) {
	for name, c := range map[string]struct {
		principal, agent wire.Hello
		want             string
	}{
		"the agent is too old":             {speaks(2, 3), speaks(1, 1), "upgrade the agent"},
		"the principal is too old":         {speaks(1, 1), speaks(2, 3), "upgrade the principal"},
		"the agent says nothing":           {speaks(1, 1), wire.Hello{}, "upgrade the agent"},
		"the agent speaks less than none":  {speaks(1, 1), speaks(-5, -1), "upgrade the agent"},
		"the agent's range is none":        {speaks(1, 3), speaks(3, 2), "version"},
		"the agent's range is none at all": {speaks(1, 3), speaks(9, 2), "version"},
	} {
		_, err := wire.Agree(c.principal, c.agent)
		require.ErrorContains(t, err, c.want, name)
	}
}
