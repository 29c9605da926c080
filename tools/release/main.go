// Command release builds what is published of the product: images alone, or a whole release.
package main

import (
	"context"
	"errors"
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
	if len(args) == 0 {
		return errors.New("want what to make: images or all")
	}
	r := release{programs: products()}
	flags := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	flags.StringVar(&r.root, "root", ".", "folder of the product's module")
	flags.StringVar(&r.out, "out", "dist", "folder for what is made")
	flags.StringVar(&r.version, "version", "dev", "what the programs call themselves, and the tag of the images")
	flags.StringVar(&r.revision, "revision", "unknown", "commit that is built")
	created := flags.Int64("created", 0, "when the commit was made, in seconds since 1970: the time of all that is made")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "what images and archives of all programs are built for")
	if err := flags.Parse(args[1:]); err != nil {
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
	switch args[0] {
	case "images":
		return r.images(ctx, filepath.Join(r.out, "images"))
	case "all":
		return r.all(ctx)
	}
	return fmt.Errorf("%q cannot be made: want images or all", args[0])
}
