// Command kubelet is the stock kubelet, built from its published module, so
// that the adoption test can put it beside tinylet on one board.
package main

import (
	"context"
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(cli.Run(app.NewKubeletCommand(context.Background())))
}
