// Command hello is a program with a dependency.
package main

import (
	"fmt"

	"golang.org/x/sync/errgroup"
)

func main() {
	var group errgroup.Group
	group.Go(func() error {
		_, err := fmt.Println("hello")
		return err
	})
	if err := group.Wait(); err != nil {
		panic(err)
	}
}
