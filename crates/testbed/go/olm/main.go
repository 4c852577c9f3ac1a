// Says what is wrong with an OLM bundle, by the rules of operator-framework itself.
package main

import (
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
)

func main() {
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	failed := false
	for _, result := range validation.DefaultBundleValidators.Validate(bundle.ObjectsToValidate()...) {
		for _, warning := range result.Warnings {
			fmt.Println("warning:", warning)
		}
		for _, problem := range result.Errors {
			fmt.Println("error:", problem)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}
