package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/tinylet/tinylet/cmd/tinylet/cli"
)

var update = flag.Bool("update", false, "write the documents of the commands")

// TestDocuments compares the reference of the commands, their man pages and the shell completions
// with the commands.
func TestDocuments(t *testing.T) {
	documents := make(map[string][]byte)
	p := program{commands: cli.Commands(), stdout: io.Discard, stderr: io.Discard}
	root := p.tinyletCommand()
	root.InitDefaultCompletionCmd()
	reference, err := commandReference(root)
	if err != nil {
		t.Fatal(err)
	}
	documents["reference/cli.md"] = reference
	for cmd := range commands(root) {
		var page bytes.Buffer
		header := doc.GenManHeader{
			Title: strings.ToUpper(strings.ReplaceAll(cmd.CommandPath(), " ", "-")), Section: "8",
			Date: new(time.Unix(0, 0).UTC()), Source: "tinylet", Manual: "tinylet",
		}
		if err := doc.GenMan(cmd, &header, &page); err != nil {
			t.Fatal(err)
		}
		documents["man/"+strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".8"] = page.Bytes()
	}
	var bash, zsh, fish bytes.Buffer
	if err := errors.Join(root.GenBashCompletionV2(&bash, true), root.GenZshCompletion(&zsh), root.GenFishCompletion(&fish, true)); err != nil {
		t.Fatal(err)
	}
	documents["completion/tinylet.bash"], documents["completion/_tinylet"], documents["completion/tinylet.fish"] = bash.Bytes(), zsh.Bytes(), fish.Bytes()
	for name, want := range documents {
		path := filepath.Join("..", "..", "docs", name)
		if *update {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, want, 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("docs/%s is stale: run make docs (-want +got):\n%s", name, diff)
		}
	}
	for _, dir := range []string{"man", "completion"} {
		files, err := os.ReadDir(filepath.Join("..", "..", "docs", dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if documents[dir+"/"+f.Name()] == nil {
				t.Errorf("docs/%s/%s is of no command: remove it", dir, f.Name())
			}
		}
	}
}

// commands yields a command and all commands below it.
func commands(root *cobra.Command) func(yield func(*cobra.Command) bool) {
	return func(yield func(*cobra.Command) bool) {
		if !yield(root) {
			return
		}
		for _, c := range root.Commands() {
			if c.IsAvailableCommand() {
				commands(c)(yield)
			}
		}
	}
}

// commandReference returns the reference of all commands as one Markdown document.
func commandReference(root *cobra.Command) ([]byte, error) {
	var text bytes.Buffer
	text.WriteString("# Commands\n\nWritten by `make docs`. The same texts are printed by `--help`, and are in the man pages of [docs/man](../man).\n\n")
	anchor := func(file string) string {
		return "#" + strings.ReplaceAll(strings.TrimSuffix(file, ".md"), "_", "-")
	}
	for cmd := range commands(root) {
		if err := doc.GenMarkdownCustom(cmd, &text, anchor); err != nil {
			return nil, err
		}
		text.WriteString("\n")
	}
	text.WriteString("## Flags of the agent\n\nThey are those of the kubelet. The command line of `tinylet` and of `kubelet` has all of them.\n\n```\n")
	root.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = false })
	fmt.Fprintf(&text, "%s```\n", root.Flags().FlagUsages())
	return text.Bytes(), nil
}
