// Command lanelog reads what `go test -json` prints and prints it as
// `go test -v` would, each line with the name of its lane before it, since
// lanes run beside each other. What failed tests have said is printed once
// more at the end, and kept in a file for whoever reads only the last lines of
// all lanes:
//
//	go test -json ./... | lanelog -lane arm64 -keep failed-arm64
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
)

func main() {
	lane := flag.String("lane", "", "the name before each line")
	keep := flag.String("keep", "", "the file for what failed tests have said; absent after a run in which none failed")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *lane, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "lanelog:", err)
		os.Exit(1)
	}
}

// run reads until the end of in. That tests failed is no error: it is the
// exit status of `go test` that says so.
func run(in io.Reader, out io.Writer, lane, keep string) error {
	if keep != "" {
		if err := os.Remove(keep); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	prefix := ""
	if lane != "" {
		prefix = lane + ": "
	}
	failed, err := follow(in, out, prefix)
	if err != nil {
		return err
	}
	if failed == "" {
		return nil
	}
	if _, err := io.WriteString(out, failed); err != nil || keep == "" {
		return err
	}
	return os.WriteFile(keep, []byte(failed), 0o644)
}
