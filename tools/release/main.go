// Command release builds what is published of the product.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// release is what is published, and where it is put.
type release struct {
	root, out string // the module, and the folder for what is made
	version   string
	revision  string
	created   time.Time
	platforms []platform
	programs  []product
}

// platform is Go's name of one, such as linux/arm64.
type platform struct{ os, arch string }

func run(ctx context.Context, args []string) error {
	r := release{programs: products()}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.root, "root", ".", "folder of the product's module")
	flags.StringVar(&r.out, "out", "dist", "folder for what is made")
	flags.StringVar(&r.version, "version", "dev", "what the programs call themselves, and the tag of the images")
	flags.StringVar(&r.revision, "revision", "unknown", "commit that is built")
	created := flags.Int64("created", 0, "when the commit was made, in seconds since 1970: the time of all that is made")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "what is built for")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r.created = time.Unix(*created, 0).UTC()
	for name := range strings.SplitSeq(*platforms, ",") {
		system, arch, ok := strings.Cut(name, "/")
		if !ok {
			return fmt.Errorf("-platforms %q: want names such as linux/arm64, with commas between them", *platforms)
		}
		r.platforms = append(r.platforms, platform{system, arch})
	}
	if err := os.MkdirAll(filepath.Join(r.out, "images"), 0o755); err != nil {
		return err
	}
	return r.images(ctx)
}
