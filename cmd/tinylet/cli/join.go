package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tinylet/tinylet/agent/apiserver/bootstrap"
	"github.com/tinylet/tinylet/agent/config/version"
	"github.com/tinylet/tinylet/board/provision"
)

// maxToken is the maximum number of bytes that are read of a token file. A token is
// shorter.
const maxToken = 1 << 10

// maxRequest is the maximum number of bytes that are read of a request to join.
const maxRequest = 64 << 10

func (s *system) join() *cobra.Command {
	o := bootstrap.Options{UserAgent: "tinylet/" + version.Release()}
	var tokenFile, requestFile string
	cmd := &cobra.Command{
		Use:   "join --server URL --token-file FILE --ca-cert-hash sha256:HASH",
		Short: "Join this node to a cluster without kubeadm",
		Long: "Join this node to a cluster: discover the cluster with a bootstrap token, verify\n" +
			"the hash of its CA, and write the bootstrap kubeconfig and the CA. An agent that\n" +
			"runs with --kubeconfig and --bootstrap-kubeconfig then requests its certificate\n" +
			"without a restart (TLS bootstrap).\n\n" +
			"`kubeadm token create --print-join-command` on the control plane prints a token\n" +
			"and the hash. If the node already belongs to the cluster, nothing changes.\n\n" +
			"Pass the token in a file or on standard input. --token works too, but it exposes\n" +
			"the token in the process list and in the shell's history.",
		Example: `  # Join with the output of kubeadm. Type or paste the token, and end with Ctrl-D.
  tinylet join --server https://10.0.0.1:6443 --token-file - \
      --ca-cert-hash sha256:7c2e69131a36ae2a042a339b33381c6d0d43887e2de83720eff5359e26aec866

  # Join from another machine with a new token.
  ssh control-plane kubeadm token create |
      ssh board tinylet join --server https://10.0.0.1:6443 --token-file - --ca-cert-hash sha256:...

  # Join with a token file that only root can read.
  tinylet join --server https://10.0.0.1:6443 --token-file /run/token --ca-cert-hash sha256:...`,
		Args: cobra.NoArgs,
	}
	form := addOutput(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.Server, "server", "", "`URL` of the API server")
	flags.StringVar(&o.Token, "token", "", "bootstrap `token`; every user can see it in the process list: prefer --token-file")
	flags.StringVar(&tokenFile, "token-file", "", "`file` with the bootstrap token; - is standard input")
	flags.StringVar(&requestFile, "request-file", "", "JSON `file` with server, token and caCertHashes in place of the flags, as tinylet provision writes it; it is deleted when the node has joined")
	flags.StringSliceVar(&o.CAHashes, "ca-cert-hash", nil, "`hash` of the cluster's CA, sha256:...; may be repeated")
	flags.BoolVar(&o.UnsafeSkipCAVerification, "unsafe-skip-ca-verification", false, "trust any CA that the token has signed; anyone with the token can then impersonate the API server")
	flags.BoolVar(&o.Force, "force", false, "join even if the node belongs to another cluster")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "/etc/kubernetes/kubelet.conf", "`file` for the node's kubeconfig")
	flags.StringVar(&o.BootstrapKubeconfig, "bootstrap-kubeconfig", "/etc/kubernetes/bootstrap-kubelet.conf", "`file` for the bootstrap kubeconfig")
	flags.StringVar(&o.CAFile, "ca-file", "/etc/kubernetes/pki/ca.crt", "`file` for the cluster's CA")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case requestFile == "":
			if err := readToken(&o, tokenFile, cmd.InOrStdin()); err != nil {
				return err
			}
		case o.Server != "" || o.Token != "" || tokenFile != "" || len(o.CAHashes) > 0:
			return errors.New("pass either --request-file or --server, a token and --ca-cert-hash")
		default:
			if err := readRequest(&o, requestFile); err != nil {
				return err
			}
		}
		if o.Server == "" {
			return errors.New("--server is missing: pass the URL of the API server, such as https://10.0.0.1:6443")
		}
		result, err := bootstrap.Join(cmd.Context(), o)
		if err != nil {
			return err
		}
		if requestFile != "" {
			if err := os.Remove(requestFile); err != nil {
				return fmt.Errorf("the node may join, and the file with its token is left: %w", err)
			}
		}
		return form.print(cmd.OutOrStdout(), result, func(w io.Writer) error { return printJoined(w, &o, result) })
	}
	return command(cmd)
}

// readRequest sets the arguments of o from a file that provisioning has written.
func readRequest(o *bootstrap.Options, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read request to join: %w", err)
	}
	defer f.Close()
	var request provision.Join
	if err := json.NewDecoder(io.LimitReader(f, maxRequest)).Decode(&request); err != nil {
		return fmt.Errorf("read request to join in %s: %w", file, err)
	}
	o.Server, o.Token, o.CAHashes = request.Server, request.Token, request.CACertHashes
	return nil
}

// readToken sets the token of o from file, if it is not "". "-" is stdin.
func readToken(o *bootstrap.Options, file string, stdin io.Reader) error {
	switch {
	case (o.Token == "") == (file == ""):
		return errors.New("pass either --token-file or --token: `kubeadm token create` creates a token")
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
		_, err := fmt.Fprintf(w, "This node already belongs to the cluster at %s; nothing was changed.\n", r.Server)
		return err
	}
	_, err := fmt.Fprintf(w, "This node may join the cluster at %s.\nWritten: %s and %s.\n\n"+
		"The agent now requests the node's certificate if it runs with\n"+
		"  --kubeconfig %s --bootstrap-kubeconfig %s\n"+
		"Otherwise restart it (systemctl restart tinylet, or /etc/init.d/S50tinylet restart).\n"+
		"`tinylet status` and `kubectl get nodes` show the progress.\n",
		r.Server, o.BootstrapKubeconfig, o.CAFile, o.Kubeconfig, o.BootstrapKubeconfig)
	return err
}
