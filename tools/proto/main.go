// Command proto generates the Go code of protobuf files with the plugins that this module pins, and can say which
// generated files are stale. It stands in for protoc, which is not a Go program and so cannot be pinned in a go.mod.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var imports []string
	flags := flag.NewFlagSet("proto", flag.ContinueOnError)
	flags.Func("I", "folder that imports are relative to; may be given again", func(dir string) error {
		imports = append(imports, dir)
		return nil
	})
	root := flags.String("root", ".", "folder that the named files are relative to, and that their Go code goes to")
	check := flags.Bool("check", false, "write nothing; name the generated files that are not current")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("no protobuf file is named: give paths relative to -root")
	}
	request, err := compile(ctx, append(imports, *root), flags.Args())
	if err != nil {
		return err
	}
	files, err := generate(ctx, request)
	if err != nil {
		return err
	}
	if *check {
		return files.compare(*root)
	}
	return files.write(*root)
}
