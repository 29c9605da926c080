package logging_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/slogtest"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
)

func TestLogLevelPerComponent(t *testing.T) {
	cases := map[string]struct {
		levels       []string
		main, tunnel string // the levels whose lines are seen, by first letter
	}{
		"nothing asked":                  {nil, "iwe", "iwe"},
		"one for all":                    {[]string{"warn"}, "we", "we"},
		"one component louder":           {[]string{"tunnel=debug"}, "iwe", "diwe"},
		"one component quieter":          {[]string{"debug", "tunnel=error"}, "diwe", "e"},
		"order of the two is the same":   {[]string{"tunnel=error", "debug"}, "diwe", "e"},
		"the last of two holds":          {[]string{"error", "info", "tunnel=error", "tunnel=warn"}, "iwe", "we"},
		"trace is debug":                 {[]string{"trace"}, "diwe", "diwe"},
		"capitals":                       {[]string{"ERROR"}, "e", "e"},
		"a component that nobody is":     {[]string{"other=debug"}, "iwe", "iwe"},
		"a component spelled as a level": {[]string{"error=debug"}, "iwe", "iwe"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var output bytes.Buffer
			logger, err := logging.New(logging.Options{Levels: c.levels, Output: &output})
			require.NoError(t, err)
			tunnel := logging.Component(logger, "tunnel")

			seen := func(say func(string, ...any), letter string) string {
				output.Reset()
				say("x")
				if output.Len() == 0 {
					return ""
				}
				return letter
			}
			require.Equal(t, c.main, seen(logger.Debug, "d")+seen(logger.Info, "i")+seen(logger.Warn, "w")+seen(logger.Error, "e"))
			require.Equal(t, c.tunnel, seen(tunnel.Debug, "d")+seen(tunnel.Info, "i")+seen(tunnel.Warn, "w")+seen(tunnel.Error, "e"))
		})
	}
}

func TestLogLevelSurvivesAttributesAndGroups(t *testing.T) {
	var output bytes.Buffer
	logger, err := logging.New(logging.Options{Levels: []string{"error", "tunnel=debug", "shop=error"}, Output: &output})
	require.NoError(t, err)

	logging.Component(logger, "tunnel").With("agent", "a").WithGroup("object").With("component", "shop").Debug("opened", "kind", "kube")
	require.Contains(t, output.String(), `level=DEBUG msg=opened component=tunnel agent=a object.component=shop object.kind=kube`)
}

func TestJSONLine(t *testing.T) {
	var output bytes.Buffer
	logger, err := logging.New(logging.Options{Format: logging.JSON, Output: &output})
	require.NoError(t, err)
	logging.Component(logger, "sync").Info("An agent connected", "agent", "a")

	var line map[string]any
	require.NoError(t, json.Unmarshal(output.Bytes(), &line))
	delete(line, "time")
	require.Equal(t, map[string]any{"level": "INFO", "msg": "An agent connected", "component": "sync", "agent": "a"}, line)
}

func TestInvalidLogLevelIsNamed(t *testing.T) {
	for _, entry := range []string{"loud", "", "tunnel=", "=debug", "tunnel=loud", "tunnel=debug=info", "fatal"} {
		_, err := logging.New(logging.Options{Levels: []string{"info", entry}})
		require.ErrorContains(t, err, "log level \""+entry+"\": want [component=]level")
		require.Equal(t, err, logging.CheckLevels([]string{entry}))
	}
	require.NoError(t, logging.CheckLevels([]string{"info", "tunnel=trace"}))

	_, err := logging.New(logging.Options{Format: "xml"})
	require.EqualError(t, err, `log format "xml": want one of text, json`)
}

func TestHandlerPassesSlogtest(t *testing.T) {
	var output bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		t.Helper()
		output.Reset()
		logger, err := logging.New(logging.Options{Format: logging.JSON, Output: &output})
		require.NoError(t, err)
		return logger.Handler()
	}, func(t *testing.T) map[string]any {
		t.Helper()
		var line map[string]any
		require.NoError(t, json.Unmarshal(output.Bytes(), &line))
		return line
	})
}

// Whoever reaches a port can cause a line for each connection. Few of them are written, and other loggers' are not fewer for it.
func TestLimitedLoggerWritesFewOfManyLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	limited := logging.Limited(logger)
	for range 1000 {
		limited.With("a", 1).WithGroup("g").Warn("often")
	}
	logger.Info("other")
	written := strings.Count(out.String(), "often")
	require.GreaterOrEqual(t, written, 20)
	require.Less(t, written, 100)
	require.Contains(t, out.String(), "other")
}
