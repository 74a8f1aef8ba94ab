package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/preflight"
	"github.com/tinylet/tinylet/board"
)

func (s *system) kernelArgs() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kernel-args [--write]",
		Short: "Show or add the kernel arguments that a Raspberry Pi needs",
		Long: "Show the arguments that the kernel's command line of a Raspberry Pi needs for a\n" +
			"node, and with --write add them to cmdline.txt of the boot partition. The memory\n" +
			"cgroup is disabled without them. They take effect with the next reboot.",
		Example: `  # Show the arguments and the file.
  tinylet kernel-args

  # Add them.
  sudo tinylet kernel-args --write && sudo reboot`,
		Args: cobra.NoArgs,
	}
	write := cmd.Flags().Bool("write", false, "add the arguments to cmdline.txt")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		root, err := os.OpenRoot(s.root)
		if err != nil {
			return fmt.Errorf("open the root directory: %w", err)
		}
		defer root.Close()
		name, err := commandLineFile(root)
		if err != nil {
			return err
		}
		arguments := preflight.RaspberryArguments()
		if _, err := root.Stat("proc/pressure"); errors.Is(err, fs.ErrNotExist) {
			arguments = append(arguments, "psi=1")
		}
		if !*write {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "/%s needs: %s\nAdd what is missing with 'tinylet kernel-args --write', and reboot.\n", name, strings.Join(arguments, " "))
			return err
		}
		changed, err := board.AddArgumentsToFile(root, name, arguments)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("%w; run the command as root", err)
		case errors.Is(err, syscall.EROFS):
			return fmt.Errorf("%w; mount it writable: mount -o remount,rw /%s", err, filepath.Dir(name))
		case err != nil:
			return err
		case changed:
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Added to /%s: %s\nReboot to use them.\n", name, strings.Join(arguments, " "))
		default:
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "/%s has them already. If the memory controller is missing, reboot.\n", name)
		}
		return err
	}
	return command(cmd)
}

// commandLineFile returns the path of cmdline.txt below root.
func commandLineFile(root *os.Root) (string, error) {
	for _, name := range board.CommandLineFiles {
		switch _, err := root.Stat(name); {
		case err == nil:
			return name, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("find kernel command line: %w", err)
		}
	}
	return "", fmt.Errorf("there is no /%s: this is no Raspberry Pi, or its boot partition is not mounted; 'tinylet check' shows what the kernel needs", strings.Join(board.CommandLineFiles, " and no /"))
}
