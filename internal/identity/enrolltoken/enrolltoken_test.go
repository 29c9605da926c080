package enrolltoken_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
)

func TestTokenIsForOneAgentOneKeyAndAWhile(t *testing.T) {
	t.Parallel()
	now := time.Now()
	token := enrolltoken.New("berlin")
	kept, err := enrolltoken.NewEntry(token, now.Add(time.Hour)).Encode()
	require.NoError(t, err)
	require.NotContains(t, string(kept), token.Text()[len("berlin."):], "the hub keeps a hash")
	require.NotContains(t, token.String(), token.Text()[len("berlin."):])

	renamed, err := enrolltoken.Parse("paris" + token.Text()[len("berlin"):])
	require.NoError(t, err)
	for want, refused := range map[error]func() error{
		enrolltoken.ErrUnknown: func() error { _, _, err := enrolltoken.Redeem(kept, renamed, []byte("key"), now); return err },
		enrolltoken.ErrExpired: func() error {
			_, _, err := enrolltoken.Redeem(kept, token, []byte("key"), now.Add(time.Hour))
			return err
		},
	} {
		require.ErrorIs(t, refused(), want)
	}
	for _, bad := range [][]byte{nil, []byte("{}"), []byte("null"), []byte("junk")} {
		_, _, err := enrolltoken.Redeem(bad, token, []byte("key"), now)
		require.ErrorIs(t, err, enrolltoken.ErrUnknown)
	}

	used, changed, err := enrolltoken.Redeem(kept, token, []byte("key"), now)
	require.NoError(t, err)
	require.True(t, changed)
	kept, err = used.Encode()
	require.NoError(t, err)
	_, changed, err = enrolltoken.Redeem(kept, token, []byte("key"), now)
	require.NoError(t, err, "the answer may have been lost")
	require.False(t, changed)
	_, _, err = enrolltoken.Redeem(kept, token, []byte("another"), now)
	require.ErrorIs(t, err, enrolltoken.ErrUsed)
}

func TestWhatIsNoToken(t *testing.T) {
	t.Parallel()
	good := enrolltoken.New("berlin").Text()
	for _, text := range []string{"", "berlin", ".", good + "A", good[:len(good)-1], "Berlin" + good[6:], "a.b" + good[6:], good[7:]} {
		_, err := enrolltoken.Parse(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), good[7:20])
	}
	parsed, err := enrolltoken.Parse(" " + good + "\n")
	require.NoError(t, err)
	require.Equal(t, good, parsed.Text())
}
