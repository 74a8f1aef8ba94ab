package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/apiserver/bootstrap"
	"github.com/tinylet/tinylet/agent/config/version"
)

// JoinDocument is what join -o json prints.
type JoinDocument struct {
	Server string `json:"server"`
	// Advertised is what the cluster itself calls its API server.
	Advertised string `json:"advertised,omitempty"`
	CAHash     string `json:"caHash"`
	// AlreadyJoined says that the node is of this cluster; nothing was written.
	AlreadyJoined bool `json:"already"`
}

// maxToken is far more than a token has.
const maxToken = 1 << 10

func (s *system) join() *cobra.Command {
	o := bootstrap.Options{UserAgent: "tinylet/" + version.Release()}
	var tokenFile string
	cmd := &cobra.Command{
		Use:   "join --server URL --token-file FILE --ca-cert-hash sha256:HASH",
		Short: "Make this board a node of a cluster, without kubeadm",
		Long: "Make this board a node of a cluster: find out with a bootstrap token which one it\n" +
			"is, check that with the hash of the cluster's CA, and write the bootstrap\n" +
			"kubeconfig and the CA. An agent that runs with --kubeconfig and\n" +
			"--bootstrap-kubeconfig then asks for its certificate by itself, without a\n" +
			"restart.\n\n" +
			"`kubeadm token create --print-join-command` on the control plane prints a token\n" +
			"and the hash. A board that is a node of the cluster already stays so.\n\n" +
			"Give the token in a file or by the standard input: --token works too, but the\n" +
			"list of processes and the shell's history show it then.",
		Example: `  # With what kubeadm printed; type or paste the token, and end with Ctrl-D.
  tinylet join --server https://10.0.0.1:6443 --token-file - \
      --ca-cert-hash sha256:7c2e69131a36ae2a042a339b33381c6d0d43887e2de83720eff5359e26aec866

  # From another machine, with a token that is made for it.
  ssh control-plane kubeadm token create |
      ssh board tinylet join --server https://10.0.0.1:6443 --token-file - --ca-cert-hash sha256:...

  # From a file that root alone can read.
  tinylet join --server https://10.0.0.1:6443 --token-file /run/token --ca-cert-hash sha256:...`,
		Args: cobra.NoArgs,
	}
	form := addOutput(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.Server, "server", "", "`URL` of the API server")
	flags.StringVar(&o.Token, "token", "", "bootstrap `token`; every user can see it in the list of processes: prefer --token-file")
	flags.StringVar(&tokenFile, "token-file", "", "`file` with the bootstrap token, - is the standard input")
	flags.StringSliceVar(&o.CAHashes, "ca-cert-hash", nil, "`hash` of the cluster's CA, sha256:...; may be repeated")
	flags.BoolVar(&o.UnsafeSkipCAVerification, "unsafe-skip-ca-verification", false, "trust any CA that the token has signed: whoever had the token can then be the server")
	flags.BoolVar(&o.Force, "force", false, "leave another cluster for this one")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "/etc/kubernetes/kubelet.conf", "`file` that the node's kubeconfig is to be in")
	flags.StringVar(&o.BootstrapKubeconfig, "bootstrap-kubeconfig", "/etc/kubernetes/bootstrap-kubelet.conf", "`file` for the bootstrap kubeconfig")
	flags.StringVar(&o.CAFile, "ca-file", "/etc/kubernetes/pki/ca.crt", "`file` for the cluster's CA")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := takeToken(&o, tokenFile, cmd.InOrStdin()); err != nil {
			return err
		}
		if o.Server == "" {
			return errors.New("--server is missing: the API server's URL, such as https://10.0.0.1:6443")
		}
		result, err := bootstrap.Join(cmd.Context(), o)
		if err != nil {
			return err
		}
		if *form == outputJSON {
			return printJSON(cmd.OutOrStdout(), JoinDocument(result))
		}
		return printJoined(cmd.OutOrStdout(), &o, result)
	}
	return command(cmd)
}

// takeToken reads the token's file, if there is one.
func takeToken(o *bootstrap.Options, file string, stdin io.Reader) error {
	switch {
	case (o.Token == "") == (file == ""):
		return errors.New("either --token-file or --token is needed: `kubeadm token create` makes a token")
	case file == "":
		return nil
	}
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("read token: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxToken))
	if err != nil {
		return fmt.Errorf("read token: %w", err)
	}
	o.Token = strings.TrimSpace(string(data))
	return nil
}

func printJoined(w io.Writer, o *bootstrap.Options, r bootstrap.Result) error {
	if r.AlreadyJoined {
		_, err := fmt.Fprintf(w, "This board is a node of %s already; nothing was changed.\n", r.Server)
		return err
	}
	_, err := fmt.Fprintf(w, "This board may join the cluster at %s.\nWritten: %s and %s.\n\n"+
		"The agent asks for the node's certificate now if it runs with\n"+
		"  --kubeconfig %s --bootstrap-kubeconfig %s\n"+
		"`tinylet status` and `kubectl get nodes` show how that goes.\n",
		r.Server, o.BootstrapKubeconfig, o.CAFile, o.Kubeconfig, o.BootstrapKubeconfig)
	return err
}
