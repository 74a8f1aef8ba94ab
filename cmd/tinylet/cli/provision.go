package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/board/provision"
)

func (s *system) provision() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "provision [flags]",
		Short: "Set the board up from a file on its boot partition",
		Long: "Set the board up from a file on its boot partition, as at the first boot: host\n" +
			"name, time zone, network, SSH keys, and the cluster to join. The file is applied\n" +
			"once, and overwritten then, since it has secrets. Without a file, the command does\n" +
			"nothing. A file with an error changes nothing; the error is also in the output of\n" +
			"tinylet status and on the status page.\n\n" +
			"The init scripts of the board images call it before the network starts.",
		Example: `  # Apply /boot/tinylet.yaml.
  tinylet provision

  # Check a file before it is copied to a card.
  tinylet provision --check tinylet.yaml`,
		Args: cobra.NoArgs,
	}
	boot := cmd.Flags().String("boot", "/boot", "`directory` of the boot partition")
	file := cmd.Flags().String("file", "tinylet.yaml", "`name` of the file in it")
	check := cmd.Flags().String("check", "", "check this `file`, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *check != "" {
			text, err := os.ReadFile(*check)
			if err != nil {
				return err
			}
			if _, err = provision.Parse(text); err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid\n", *check)
			}
			return err
		}
		root, err := os.OpenRoot(s.root)
		if err != nil {
			return fmt.Errorf("open the root directory: %w", err)
		}
		defer root.Close()
		result, err := applyFile(root, *boot, *file)
		if recordErr := provision.Record(root, err); recordErr != nil {
			err = errors.Join(err, recordErr)
		}
		switch result {
		case provision.Applied:
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "applied %s/%s\n", *boot, *file)
		case provision.Wiped:
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s/%s was applied before; it was overwritten\n", *boot, *file)
		case provision.None:
		}
		return err
	}
	return command(cmd)
}

func applyFile(root *os.Root, boot, file string) (provision.Result, error) {
	partition, err := os.OpenRoot(boot)
	if err != nil {
		return provision.None, fmt.Errorf("open the boot partition: %w", err)
	}
	defer partition.Close()
	return provision.Apply(root, partition, file)
}
