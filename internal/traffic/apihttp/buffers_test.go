package apihttp_test

import (
	"net/http/httputil"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

var _ httputil.BufferPool = (*apihttp.BufferPool)(nil)

func TestBuffersHaveTheirSize(t *testing.T) {
	t.Parallel()
	pool := apihttp.NewBufferPool(7)
	first, second := pool.Get(), pool.Get()
	require.Len(t, first, 7)
	first[0], second[0] = 1, 2
	require.Equal(t, byte(1), first[0], "two who copy at a time do not share one")
	pool.Put(first)
	require.Len(t, pool.Get(), 7)
}
