package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// allocCommand takes memory in MiB, touches all of it and keeps it.
func allocCommand(set *flag.FlagSet) func(context.Context, []string) error {
	step := set.Duration("step", 10*time.Millisecond, "`time` between two MiB")
	return func(ctx context.Context, args []string) error {
		if len(args) != 1 {
			return errors.New("alloc: want a number of MiB")
		}
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		ctx, stop := terminated(ctx)
		defer stop()
		var kept [][]byte
		for range n {
			chunk := make([]byte, 1<<20)
			for i := 0; i < len(chunk); i += os.Getpagesize() {
				chunk[i] = 1
			}
			kept = append(kept, chunk)
			if wait(ctx, *step) != nil {
				return nil
			}
		}
		fmt.Printf("holding %d MiB\n", len(kept))
		<-ctx.Done()
		_, err = fmt.Println("held", len(kept)) // keeps it alive until here
		return err
	}
}

// logCommand prints lines "N xxxx".
func logCommand(set *flag.FlagSet) func(context.Context, []string) error {
	lines := set.Int("lines", 10, "`number` of lines; 0 is without end")
	size := set.Int("bytes", 80, "`length` of a line")
	every := set.Duration("every", 0, "`time` between lines")
	keepRunning := set.Bool("linger", false, "wait for SIGTERM then")
	code := set.Int("code", 0, "exit `code`")
	return func(ctx context.Context, _ []string) error {
		ctx, stop := terminated(ctx)
		defer stop()
		for i := 0; *lines == 0 || i < *lines; i++ {
			text := strconv.Itoa(i) + " "
			fmt.Println(text + strings.Repeat("x", max(0, *size-len(text)-1)))
			if *every > 0 && wait(ctx, *every) != nil {
				return nil
			}
		}
		if *keepRunning {
			<-ctx.Done()
		}
		if *code != 0 {
			return exitError(*code)
		}
		return nil
	}
}
