package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// project has the working directory be a module with these files.
func project(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.com/m\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	t.Chdir(dir)
}

func TestWhatIsSkippedIsSaidAtTheEnd(t *testing.T) {
	project(t, map[string]string{
		"none/none.go": "package none",
		"some/some_test.go": `package some_test
import "testing"
func TestSlow(t *testing.T) {
	t.Log("dice: 7")
	if testing.Short() { t.Skip("two minutes:\nthe others do not take so long") }
}
func TestParts(t *testing.T) {
	t.Run("one", func(t *testing.T) { t.SkipNow() })
	t.Run("other", func(t *testing.T) { t.Log("all is well") })
}`,
		"whole/whole_test.go": `package whole_test
import ("fmt"; "testing")
func TestMain(*testing.M) { fmt.Println("SKIP: there is no moon") }`,
	})
	var said bytes.Buffer
	require.NoError(t, run(t.Context(), &said, []string{"-short", "-p=1", "./..."}))
	require.Regexp(t, `^ok  	example.com/m/some	[0-9.]+s
ok  	example.com/m/whole	[0-9.]+s

3 skipped:
  example.com/m/some TestSlow: two minutes: the others do not take so long
  example.com/m/some TestParts/one: it does not say why
  example.com/m/whole: there is no moon

nothing failed
$`, said.String())
}

func TestWhatFailsIsShownAndFails(t *testing.T) {
	project(t, map[string]string{
		"broken/broken_test.go": `package broken_test
import "testing"
func TestIsNotCompiled(*testing.T) { undefined() }`,
		"some/some_test.go": `package some_test
import ("fmt"; "os"; "testing")
func TestMain(m *testing.M) { fmt.Println("the lab is ready"); os.Exit(m.Run()) }
func TestGood(t *testing.T) { t.Log("all is well") }
func TestBad(t *testing.T) {
	t.Run("part", func(t *testing.T) { t.Error("it broke") })
	t.Run("other", func(t *testing.T) { t.Log("all is well") })
}`,
		"wild/wild_test.go": `package wild_test
import "testing"
func TestWaits(t *testing.T) { t.Parallel(); t.Log("it waits"); select {} }
func TestWild(t *testing.T) { t.Parallel(); panic("out of order") }`,
	})
	var said bytes.Buffer
	require.Error(t, run(t.Context(), &said, []string{"-p=1", "-parallel=2", "./..."}))
	for _, text := range []string{
		"broken_test.go:3:38: undefined: undefined\n", "FAIL\texample.com/m/broken [build failed]\n",
		"--- FAIL: TestBad/part (0.00s)\n    some_test.go:6: it broke\n--- FAIL: TestBad (0.00s)\nthe lab is ready\nFAIL\n",
		"--- FAIL: TestWild (0.00s)\npanic: out of order", "wild_test.go:4", "--- not over: TestWaits\n",
		"nothing skipped\n\n4 failed:\n",
		"  example.com/m/broken\n", "  example.com/m/some TestBad/part\n  example.com/m/some TestBad\n", "  example.com/m/wild TestWild\n",
	} {
		require.Contains(t, said.String(), text)
	}
	require.NotContains(t, said.String(), "all is well")
}

// An interrupt ends the programs that `go test` has started, and what was found until then is said.
func TestInterruptEndsTheTests(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	t.Setenv("TELL", listener.Addr().String())
	project(t, map[string]string{"some_test.go": `package some_test
import ("net"; "os"; "testing")
func TestSkipped(t *testing.T) { t.Skip("not today") }
func TestWaits(t *testing.T) {
	conn, err := net.Dial("tcp", os.Getenv("TELL"))
	if err != nil { t.Fatal(err) }
	_, _ = conn.Read(make([]byte, 1))
}`})
	ctx, interrupt := context.WithCancel(t.Context())
	var said bytes.Buffer
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, &said, []string{"./..."}) }()
	conn, err := listener.Accept()
	require.NoError(t, err)
	interrupt()
	require.Error(t, <-ended)
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the test goes on")
	require.NoError(t, conn.Close())
	require.Contains(t, said.String(), "TestSkipped: not today\n")
	require.Contains(t, said.String(), "1 failed:\n  example.com/m\n")
}
