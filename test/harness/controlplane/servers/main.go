// Command servers is the stock control plane of Kubernetes, built from its
// published module, in one program that is linked once: its first argument
// says which part it is.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // time zones of CronJobs

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlerrors "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
)

// servers are the parts that run until a signal ends them.
var servers = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	if len(os.Args) < 2 {
		fail("say which part: kube-apiserver, kube-controller-manager, kube-scheduler, kubeadm or kubectl")
	}
	name := os.Args[1]
	// Each part reads the program's arguments itself.
	os.Args = append([]string{name}, os.Args[2:]...)
	switch command, ok := servers[name]; {
	case ok:
		os.Exit(cli.Run(command()))
	case name == "kubeadm":
		if err := kubeadm.Run(); err != nil {
			fail(err)
		}
	case name == "kubectl":
		kubectlerrors.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()))
	default:
		fail("no such part: " + name)
	}
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, "servers:", why)
	os.Exit(1)
}
